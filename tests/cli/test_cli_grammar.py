"""`minfer run --grammar` and `--json-schema`: what is bound, what is said of a cut text, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_calls import minfer, usage_error

SCHEMA = {"type": "object", "properties": {"a": {"enum": [10, 20]}}, "required": ["a"], "additionalProperties": False}
RUN = ("-p", "abc", "-n", 60, "--json")


def test_a_schema_binds_the_text(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    for given in (file, json.dumps(SCHEMA)):
        told = minfer("run", tiny, *RUN, "--json-schema", given).json()
        assert json.loads(told["text"])["a"] in (10, 20)
        assert (told["finish_reason"], told["complete"]) == ("stop", True)


def test_a_grammar_binds_the_text(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "list.gbnf"
    file.write_text('root ::= "- " item "\\n"\nitem ::= "x"{3}  # three\n')
    assert minfer("run", tiny, *RUN, "--grammar", file).json()["text"] == "- xxx\n"
    assert minfer("run", tiny, *RUN, "--grammar", 'root ::= "yes!"').json()["text"] == "yes!"
    assert "complete" not in minfer("run", tiny, *RUN).json()


def test_a_text_that_the_limit_cuts_is_incomplete(tiny: Path) -> None:
    grammar = ("--grammar", 'root ::= "x"{30}')
    cut = minfer("run", tiny, "-p", "abc", "-n", 29, *grammar)
    assert cut.out == "x" * 29 + "\n"
    assert "minfer: the text is incomplete: the limit of tokens cut it before" in cut.err
    assert minfer("run", tiny, "-p", "abc", "-n", 29, *grammar, "--json").json()["complete"] is False
    whole = minfer("run", tiny, "-p", "abc", "-n", 30, *grammar)
    assert "finish stop" in whole.err
    assert "incomplete" not in whole.err


def test_thinking_comes_before_what_is_bound(tiny: Path) -> None:
    grammar = ("--grammar", 'root ::= "yes"', "--grammar-after-thinking")
    assert minfer("run", tiny, "-p", "abc", "-n", 9, *grammar).out == "yes\n"
    told = minfer("run", tiny, "-p", "<think>\n", "-n", 9, "--json", *grammar).json()
    assert (told["finish_reason"], told["complete"]) == ("length", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grammar", "no/such.gbnf"], "--grammar no/such.gbnf: No such file or directory"),
        (["--json-schema", "no/such.json"], "--json-schema no/such.json: No such file or directory"),
        (["--grammar", 'root ::= "a'], 'grammar, line 1, column 10: a text in " never ends'),
        (["--json-schema", '{"nope": 1}'], "JSON Schema, #/nope: the keyword 'nope' can't be enforced"),
        (["--json-schema", "{"], "JSON Schema, line 1, column 2: this is no JSON"),
        (["--grammar", 'root ::= "a"', "--json-schema", "{}"], "give --grammar or --json-schema, not both"),
        (["--grammar-after-thinking"], "--grammar-after-thinking needs --grammar or --json-schema"),
    ],
)
def test_wrong_options_are_usage_errors(tiny: Path, arguments: list[str], said: str) -> None:
    assert said in usage_error(minfer("run", tiny, "-p", "abc", *arguments))
