"""Splitting answers: the parts of the whole, and the same ones however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_samples import TOOLS, pieces_of
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_models.chat import AnswerFormat, AnswerSplitter, ChatTemplate, Piece, ToolCall, split_answer

THINK = ("<think>", "</think>")
QWEN = AnswerFormat(THINK, calls="tags")
OPEN = AnswerFormat(THINK, thought_open=True)
LLAMA = AnswerFormat(None, calls="json")
PLAIN = AnswerFormat()
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
F = ToolCall("f", {"a": "</tool_call>"})

# (format, answer, reasoning, content, calls, unfinished)
ANSWERS: list[tuple[AnswerFormat, str, str, str, list[ToolCall], str]] = [
    (QWEN, "<think>\nhm\nhm\n</think>\n\nFour.\n", "hm\nhm", "Four.\n", [], ""),
    (QWEN, "<think>\n\n</think>\n\nFour.", "", "Four.", [], ""),
    (QWEN, "Four.</think> <think>x</think>", "", "Four.</think> <think>x</think>", [], ""),
    (QWEN, " \n Four. <3", "", " \n Four. <3", [], ""),
    (QWEN, "\n<think>a", "a", "", [], ""),
    (QWEN, "<think>a\n</th", "a\n</th", "", [], ""),
    (QWEN, "<think>\n\na\n\n", "a", "", [], ""),
    (QWEN, "<thi", "", "<thi", [], ""),
    (QWEN, "\n \n", "", "\n \n", [], ""),
    (QWEN, "<think> a <think> b </think>c", " a <think> b ", "c", [], ""),
    (QWEN, f"<think>\nt\n</think>\n\n{CALL}", "t", "", [F], ""),
    (QWEN, f"Let me see.\n{CALL}\n{CALL}\n", "", "Let me see.", [F, F], ""),
    (QWEN, f"a\n\n{CALL}\nb\n", "", "ab\n", [F], ""),
    (QWEN, CALL[:-14], "", "", [], CALL[:-14]),
    (QWEN, CALL[:-3], "", "", [], CALL[:-3]),
    (QWEN, "x\n<tool_call>not json</tool_call>\ny", "", "x\n<tool_call>not json</tool_call>\ny", [], ""),
    (QWEN, '<tool_call>{"name": "g", "arguments": null}</tool_call>', "", "", [ToolCall("g", {})], ""),
    (QWEN, '<tool_call>["f"]</tool_call>', "", '<tool_call>["f"]</tool_call>', [], ""),
    (QWEN, '<tool_call>{"name": "f", "arguments": 7}</tool_call>', "", None, [], ""),  # type: ignore[list-item]
    (QWEN, "a < b\n<tool", "", "a < b\n<tool", [], ""),
    (OPEN, "hm\n</think>\n\nFour.", "hm", "Four.", [], ""),
    (OPEN, "hm", "hm", "", [], ""),
    (OPEN, f"</think>{CALL}", "", CALL, [], ""),
    (LLAMA, '{"name": "f", "parameters": {"a": "}"}}', "", "", [ToolCall("f", {"a": "}"})], ""),
    (LLAMA, ' {"name": "f", "parameters": {}}; {"name": "g"}\n', "", "", [ToolCall("f", {}), ToolCall("g", {})], ""),
    (LLAMA, '{"type": "function", "name": "f", "parameters": {}}', "", "", [ToolCall("f", {})], ""),
    (LLAMA, '{"name": 3}', "", '{"name": 3}', [], ""),
    (LLAMA, '{"number": 3}', "", '{"number": 3}', [], ""),
    (LLAMA, '{"name": "f", "param', "", "", [], '{"name": "f", "param'),
    (LLAMA, '{"na', "", '{"na', [], ""),
    (LLAMA, '  Hi {"name": "f"}', "", '  Hi {"name": "f"}', [], ""),
    (LLAMA, '{"name": "f"}\nDone.', "", "Done.", [ToolCall("f", {})], ""),
    (LLAMA, " \n", "", " \n", [], ""),
    (PLAIN, f"<think>a</think>\n{CALL}", "", f"<think>a</think>\n{CALL}", [], ""),
    (PLAIN, "", "", "", [], ""),
]


@pytest.mark.parametrize(("form", "text", "reasoning", "content", "calls", "unfinished"), ANSWERS)
def test_the_parts_of_an_answer(
    form: AnswerFormat, text: str, reasoning: str, content: str | None, calls: list[ToolCall], unfinished: str
) -> None:
    answer = split_answer(text, form)
    assert (answer.reasoning, answer.calls, answer.unfinished) == (reasoning, calls, unfinished)
    assert answer.content == (text if content is None else content)


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, text, *_ in ANSWERS])
def test_any_cut_gives_the_same_parts(form: AnswerFormat, text: str) -> None:
    whole = split_answer(text, form)
    for cut in range(len(text) + 1):
        splitter, pieces = pieces_of(form, [text[:cut], text[cut:]])
        assert splitter.answer == whole
        assert "".join(p.text for p in pieces if p.kind == "content") == whole.content
        # what has been given before the cut is what a longer answer starts with
        early = AnswerSplitter(form)
        early.push(text[:cut])
        assert whole.reasoning.startswith(early.answer.reasoning)
        assert whole.content.startswith(early.answer.content)
    splitter, _ = pieces_of(form, list(text))
    assert splitter.answer == whole


SNIPPETS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "\n", "\n\n", "{", "}", '"', "\\", ";", " ", "<", "a"]
WRITTEN = st.lists(
    st.sampled_from([*SNIPPETS, "</", "tool_call>", '{"name": "f", "arguments": {"b": 1}}', '{"name"', "think>", CALL]),
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(snippets=WRITTEN, form=st.sampled_from([QWEN, OPEN, LLAMA, PLAIN]), data=st.data())
def test_no_cut_changes_the_parts_and_no_text_is_lost(snippets: list[str], form: AnswerFormat, data: Any) -> None:
    text = "".join(snippets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    splitter, pieces = pieces_of(form, parts)
    whole = split_answer(text, form)
    assert splitter.answer == whole
    assert all(piece.text or piece.call for piece in pieces)
    kept = (
        whole.reasoning + whole.content + whole.unfinished + "".join(json.dumps(dict(c.arguments)) for c in whole.calls)
    )
    assert kept.count("a") >= text.count("a") - sum(
        map(len, [THINK[0], *["name arguments <tool_call>"] * len(whole.calls)])
    )
    if not whole.calls and not whole.reasoning and form is PLAIN:
        assert whole.content == text


def test_text_comes_as_soon_as_it_is_certain() -> None:
    splitter = AnswerSplitter(QWEN)
    assert splitter.push("<th") == []
    assert splitter.push("ink>\nLet") == [Piece("reasoning", "Let")]
    assert splitter.push(" me\n") == [Piece("reasoning", " me")]
    assert splitter.push("see\n</thi") == [Piece("reasoning", "\nsee")]
    assert splitter.push("nk>\n\nFour") == [Piece("content", "Four")]
    assert splitter.push(".\n<tool") == [Piece("content", ".")]
    assert splitter.push('_call>{"name": "f"}</tool_call') == []
    assert splitter.push(">") == [Piece("call", call=ToolCall("f", {}))]
    assert splitter.finish() == []


def test_a_long_call_is_looked_through_once() -> None:
    splitter, steps = AnswerSplitter(QWEN), []
    splitter.push('<tool_call>{"name": "f", "arguments": {"a": "')
    step = splitter._scan._step
    splitter._scan._step = lambda char: (steps.append(char), step(char))[1]  # type: ignore[method-assign]
    for _ in range(2000):
        splitter.push("word ")
    assert 10000 <= len(steps) < 11000
    assert splitter.push('"}}</tool_call>')[0].call == ToolCall("f", {"a": "word " * 2000})


def test_the_format_comes_from_the_template(
    qwen_meta: dict[str, Any], llama_meta: dict[str, Any], smol_meta: dict[str, Any]
) -> None:
    user = [{"role": "user", "content": "</think><think>"}]
    qwen = ChatTemplate.from_metadata(qwen_meta)
    assert qwen.answer_format(user, TOOLS) == QWEN
    assert qwen.answer_format(user) == AnswerFormat(THINK)
    assert qwen.answer_format(user, enable_thinking=False) == AnswerFormat(THINK)
    for meta in (llama_meta, smol_meta):
        assert ChatTemplate.from_metadata(meta).answer_format(user, TOOLS) == PLAIN
    deepseek = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<|Assistant|><think>\n"
    assert ChatTemplate(deepseek, {}).answer_format(user) == OPEN
    left = [*user, {"role": "assistant", "content": "<think>\nhm"}]
    open_turn = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}{# #}{{ '<think></think>' }}", {})
    assert open_turn.answer_format(left, continue_final_message=True) == OPEN
    llama3 = "{% for m in messages %}{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}" + (
        "{{ '{\"name\": \"' + f.name + '\", ' }}{{ '\"parameters\": ' }}{{ f.arguments | tojson }}}"
    )
    llama3 += "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    assert ChatTemplate(llama3, {}).answer_format(user, TOOLS) == LLAMA


def test_what_an_answer_said_goes_on_in_the_conversation(qwen_meta: dict[str, Any]) -> None:
    """A thinking turn with a call, split and put back, renders as the model wrote it."""
    qwen = ChatTemplate.from_metadata(qwen_meta)
    user = [{"role": "user", "content": "Weather?"}]
    written = '<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    answer = split_answer(written, qwen.answer_format(user, TOOLS))
    assert answer.as_message() == {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
    }
    prompt = qwen.render(user, tools=TOOLS)
    told = qwen.render([*user, answer.as_message()], False, tools=TOOLS)
    assert told == prompt + written + "<|im_end|>\n"
    assert split_answer("hi", PLAIN).as_message() == {"role": "assistant", "content": "hi"}
