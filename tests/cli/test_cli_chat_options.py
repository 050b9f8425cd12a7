"""`--chat-template` and `--chat-arg` of `minfer run --chat`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_calls import error_line, minfer, usage_error

from minfer_models.gguf import open_gguf
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model

TALK = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
RUN = ("-p", "hi", "-n", 1, "--json", "--chat")


def prompt_tokens(model: Path, *arguments: object) -> int:
    return minfer("run", model, *RUN, *arguments).json()["usage"]["prompt_tokens"]


def test_another_template_is_used(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.jinja"
    file.write_text(TALK + "!" * 7)
    assert prompt_tokens(tiny, "--chat-template", file) == len("[user]hi!!!!!!!")
    assert prompt_tokens(tiny, "--chat-template", "default") == prompt_tokens(tiny)


def test_arguments_are_json_or_text(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.jinja"
    file.write_text(TALK + "{{ 'A' * 10 if think is false }}{{ level }}{{ list | length }}")
    options = ("--chat-template", file, "--chat-arg")
    assert prompt_tokens(tiny, *options, "think=false") == len("[user]hi" + "A" * 10 + "0")
    assert prompt_tokens(tiny, *options, "think=true") == len("[user]hi" + "0")
    assert prompt_tokens(tiny, *options, "level=high=er", "--chat-arg", "list=[1, 2]") == len("[user]hihigh=er2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--chat-template", "x.jinja"], "--chat-template is about the chat template: it needs --chat"),
        (["--chat-arg", "a=1"], "--chat-arg is about the chat template: it needs --chat"),
        (["--chat", "--chat-arg", "a"], "--chat-arg is 'a', expected KEY=VALUE such as enable_thinking=false"),
        (["--chat", "--chat-arg", "a-b=1"], "--chat-arg is 'a-b=1', expected KEY=VALUE"),
        (["--chat", "--chat-arg", "a=1", "--chat-arg", "a=2"], "--chat-arg a is given twice: 1 and '2'"),
        (["--chat", "--chat-template", "no/such.jinja"], "--chat-template no/such.jinja: there is no such file"),
    ],
)
def test_wrong_options_are_usage_errors(tiny: Path, arguments: list[str], said: str) -> None:
    assert said in usage_error(minfer("run", tiny, "-p", "hi", *arguments))


def test_what_the_template_does_not_know_is_refused(tiny: Path) -> None:
    said = error_line(minfer("run", tiny, *RUN, "--chat-arg", "enable_thinking=false"))
    assert said == "minfer: this model's chat template has no argument 'enable_thinking'; it reads none"
    said = error_line(minfer("run", tiny, *RUN, "--chat-template", "rag"))
    assert said == "minfer: 'rag' is neither a template nor the name of one; this model has default"


def test_a_broken_template_is_refused_before_any_weight_is_taken_in(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.jinja"
    file.write_text("{% for m in messages %}\n{{ m.content.shout() }}\n{% endfor %}")
    monkeypatch.setattr("minfer_models.loading.place_model", lambda *_: pytest.fail("the model was placed"))
    said = error_line(minfer("run", tiny, *RUN, "--chat-template", file))
    assert "failed at its line 2: UndefinedError" in said
    assert "m.content.shout()" in said


def test_a_model_without_a_template_or_chatml_s_markers_says_so(tmp_path: Path) -> None:
    model = tmp_path / "plain.gguf"
    write_model(model, SyntheticModel(weights="Q4_0", vocabulary=byte_vocabulary(), n_ctx_train=64))
    assert "tokenizer.chat_template" not in open_gguf(model).metadata
    assert "its vocabulary has no token <|im_start|> or <|im_end|>" in error_line(minfer("run", model, *RUN))
