"""Conversations in files: what was saved comes back, and what is broken is refused whole."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import scripted

from minfer_models import LLM
from minfer_models.talk import ConversationError, Talk
from minfer_models.talk_file import load_talk, save_talk

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT, lambda v: st.lists(v) | st.dictionaries(TEXT, v), max_leaves=6
)
MESSAGES = st.fixed_dictionaries(
    {"role": TEXT, "content": TEXT | st.none()}, optional={"tool_calls": JSON, "name": TEXT}
)
BIASES = st.dictionaries(st.integers(0, 10**6), st.floats(-100, 100) | st.just(-math.inf), max_size=3)
TALKS = st.builds(
    Talk,
    messages=st.lists(MESSAGES, max_size=4).map(tuple),
    tools=st.none() | st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=2).map(tuple),
    template_arguments=st.dictionaries(TEXT, JSON, max_size=3),
    sampling=st.fixed_dictionaries(
        {}, optional={"temperature": st.floats(0, 5), "top_k": st.integers(0, 99), "logit_bias": BIASES}
    ),
    max_tokens=st.none() | st.integers(1, 10**6),
    stop=st.lists(TEXT.filter(bool), max_size=3).map(tuple),
    seed=st.integers(0, 2**64 - 1),
    answers=st.integers(0, 10**9),
    keep_thinking=st.booleans(),
)


@given(talk=TALKS)
def test_what_is_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, talk: Talk) -> None:
    path = tmp_path_factory.getbasetemp() / "talk.json"
    save_talk(path, talk, "model.gguf")
    assert load_talk(path) == talk
    assert json.loads(path.read_text("utf-8"))["version"] == 2, "any JSON reader takes it"


GOOD = Talk(messages=({"role": "user", "content": "hi"},), sampling={"temperature": 0.5}, stop=("x",), seed=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_talk(tmp_path / "talk.json", GOOD, "model.gguf")
    return tmp_path / "talk.json"


def changed(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | entries), "utf-8")


def test_a_file_of_version_1_keeps_no_thinking(path: Path) -> None:
    entries = json.loads(path.read_text("utf-8")) | {"version": 1}
    del entries["keep_thinking"]
    path.write_text(json.dumps(entries), "utf-8")
    assert load_talk(path) == GOOD
    path.write_text(json.dumps(entries | {"version": 2}), "utf-8")
    with pytest.raises(ConversationError, match="lacks keep_thinking"):
        load_talk(path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"version": 3}, "version 3, newer than the 2 that this minfer reads"),
        ({"version": "1"}, "version is '1', not a whole number"),
        ({"version": True}, "version is True"),
        ({"version": 0}, "version is 0"),
        ({"format": "other"}, 'holds no conversation of minfer: no "format": "minfer conversation"'),
        ({"more": 1}, "has unknown entries: more"),
        ({"messages": {}}, "messages is a dict, not a list"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\] is \{'content': 'x'\}"),
        ({"messages": [{"role": 5}]}, r"messages\[0\]"),
        ({"messages": None}, "messages is a NoneType"),
        ({"tools": [1]}, "tools is"),
        ({"tools": {}}, "tools is a dict"),
        ({"template_arguments": []}, r"template_arguments is \[\], not a JSON object"),
        ({"sampling": None}, "sampling is None, not a JSON object"),
        ({"sampling": {"temperature": -1}}, "temperature is -1"),
        ({"sampling": {"temprature": 1}}, "did you mean temperature"),
        ({"sampling": {"temperature": 10**400}}, "temperature is 1000"),
        ({"sampling": {"seed": 1}}, "seed of a conversation is its own"),
        ({"sampling": {"logit_bias": {"x": 1}}}, "invalid literal"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"stop": "x"}, "stop is a str, not a list"),
        ({"stop": [""]}, "a stop string is empty"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**64}, f"seed {2**64}"),
        ({"seed": 1.0}, "seed is 1.0"),
        ({"answers": -1}, "of -1 answers"),
        ({"keep_thinking": 1}, "keep_thinking is 1, not true or false"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_in_order_is_refused_by_name_and_place(
    path: Path, entries: dict[str, Any], message: str
) -> None:
    changed(path, **entries)
    with pytest.raises(ConversationError, match=message) as refused:
        load_talk(path)
    assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "isn't JSON"),
        (b"\xff\xfe", "isn't UTF-8: invalid start byte at byte 0"),
        (b"[1, 2]", "holds no conversation"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"format": NaN}', "NaN is no JSON number"),
        (b'{"format": 1e999}', "1e999 is no number that can be held"),
        (b'{"format": 1, "format": 2}', "'format' stands twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "isn't JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_json_object_is_refused(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(ConversationError, match=message):
        load_talk(path)


def test_every_cut_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole.rstrip())):
        path.write_bytes(whole[:size])
        with pytest.raises(ConversationError):
            load_talk(path)


def test_every_entry_must_be_there(path: Path) -> None:
    whole = json.loads(path.read_text("utf-8"))
    for name in whole.keys() - {"model"}:
        path.write_text(json.dumps({key: value for key, value in whole.items() if key != name}), "utf-8")
        with pytest.raises(ConversationError, match=f"lacks {name}|version is None|holds no conversation"):
            load_talk(path)


def test_a_failed_save_leaves_the_earlier_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    surrogate = Talk(messages=({"role": "user", "content": "\ud83d"},))
    with pytest.raises(ConversationError, match=r"lone surrogate, U\+D83D"):
        save_talk(path, surrogate, "m")

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_talk(path, GOOD, "another")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["talk.json"]


@pytest.fixture
def llm(talking_path: Path) -> Iterator[LLM]:
    with scripted(talking_path, lambda prompt: prompt[-14:-11].upper(), b"[assistant]") as made:
        yield made


def test_a_talk_goes_on_as_if_it_had_never_been_saved(llm: LLM, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "system": "s",
        "temperature": 0.7,
        "top_k": 3,
        "seed": 11,
        "stop": ["Z"],
        "max_tokens": 9,
    }
    first, second = llm.conversation(**settings), llm.conversation()
    first.send("one").text()
    first.regenerate().text()
    first.save(tmp_path / "t.json")
    second.load(tmp_path / "t.json")
    assert second.talk == first.talk
    answers = [talk.send("two") for talk in (first, second)]
    assert answers[0].text() == answers[1].text()
    assert [answer.seed for answer in answers] == [13, 13]
    assert first.talk == second.talk


def test_a_refused_load_changes_nothing(llm: LLM, path: Path) -> None:
    talk = llm.conversation()
    talk.send("one").text()
    before = talk.talk
    changed(path, template_arguments={"enable_thinking": True})
    with pytest.raises(ValueError, match="no argument 'enable_thinking'"):
        talk.load(path)
    with pytest.raises(FileNotFoundError):
        talk.load(path.with_name("none.json"))
    assert talk.talk is before
    assert talk.send("two").usage.prompt_tokens
