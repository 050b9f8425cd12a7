"""Calls of tools in every notation: found from the template, read at any cut, put back as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from call_templates import ARRAY, CALLS, F_JSON, FENCED, G_JSON, NAMED, OBJECTS, SEPARATED, TAGGED, WRITTEN, F, G
from chat_samples import TOOLS, pieces_of
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from minfer_models.chat import (
    AnswerFormat,
    AnswerSplitter,
    ChatTemplate,
    ChatTemplateError,
    ToolCall,
    split_answer,
)

TAGS, MISTRAL, DEEPSEEK, LLAMA = (AnswerFormat(None, calls=name) for name in ("tags", "mistral", "deepseek", "json"))
H = ToolCall("h", {"a": 1})
USER = [{"role": "user", "content": "Hi"}]
BEGIN, END, SEP, RUN, OVER = (
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
)  # fmt: skip
OTHER_TYPE = f"{RUN}{BEGIN}other{SEP}h\n```json\n{{}}\n```{END}"
OPEN_FENCE = f'{RUN}{BEGIN}function{SEP}h\n```json\n{{"a": 1}}{END}'
THINKING = AnswerFormat(("<think>", "</think>"), calls="json")
NO = list[ToolCall]()

# (format, answer, content, calls, unfinished)
ANSWERS: list[tuple[AnswerFormat, str, str, list[ToolCall], str]] = [
    (MISTRAL, 'Sure.\n[TOOL_CALLS] [{"name": "h", "arguments": {"a": 1}}]', "Sure.", [H], ""),
    (MISTRAL, '[TOOL_CALLS][\n {"arguments": {"a": 1}, "name": "h", "id": "abcdefghi"} ,{"name": "h"}\n]\nb', "b",
     [ToolCall("h", {"a": 1}, "abcdefghi"), ToolCall("h", {})], ""),
    (MISTRAL, '[TOOL_CALLS]h{"a": 1}', "", [H], ""),
    (MISTRAL, '[TOOL_CALLS] h [ARGS] {"a": 1}', '[TOOL_CALLS] h [ARGS] {"a": 1}', NO, ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]\n{"a": 1} b', " b", [H], ""),
    (MISTRAL, '[TOOL_CALLS]h[CALL_ID]123456789[ARGS]{"a": 1}', "", [ToolCall("h", {"a": 1}, "123456789")], ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": 1}[TOOL_CALLS]h[ARGS]{"a": 1}\n', "", [H, H], ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": 1}]', "]", [H], ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": 1', "", NO, '[TOOL_CALLS]h[ARGS]{"a": 1'),
    (MISTRAL, "a\n[TOOL_CALLS]h[AR", "a", NO, "\n[TOOL_CALLS]h[AR"),
    (MISTRAL, "a [TOOL_CALLS", "a [TOOL_CALLS", NO, ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": 01}', '[TOOL_CALLS]h[ARGS]{"a": 01}', NO, ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": NaN}', '[TOOL_CALLS]h[ARGS]{"a": NaN}', NO, ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": "\\ud800"}', '[TOOL_CALLS]h[ARGS]{"a": "\\ud800"}', NO, ""),
    (MISTRAL, '[TOOL_CALLS]h[ARGS]{"a": "\n"}', '[TOOL_CALLS]h[ARGS]{"a": "\n"}', NO, ""),
    (MISTRAL, "\n\n[TOOL_CALLS] no\n\n[TOOL_CALLS] [7]", "\n\n[TOOL_CALLS] no\n\n[TOOL_CALLS] [7]", NO, ""),
    (MISTRAL, f"[TOOL_CALLS]{'x' * 300}{{}}", f"[TOOL_CALLS]{'x' * 300}{{}}", NO, ""),
    (MISTRAL, '[TOOL_CALLS] [{"name": "h", "arguments": {"a": 1}}, 7]', ", 7]", [H], ""),
    (MISTRAL, '[TOOL_CALLS] [{"name": "h", "arguments": {"a": 1}}, {"na', "", [H], ', {"na'),
    (MISTRAL, '[TOOL_CALLS] [{"name": "h", "arguments": {"a": 1}}', "", [H], ""),
    (MISTRAL, "[TOOL_CALLS]", "", NO, "[TOOL_CALLS]"),
    (DEEPSEEK, f'Well.\n\n{RUN}{BEGIN}function{SEP}h\n```json\n{{"a": 1}}\n```{END}{OVER}\nb', "Well.b", [H], ""),
    (DEEPSEEK, f'{RUN}\n{BEGIN}h{SEP}{{"a": 1}}{END}\n{BEGIN}h{SEP}{{"a": 1}}{END}{OVER}', "", [H, H], ""),
    (DEEPSEEK, f'{RUN}{BEGIN}h{SEP}{{"a": 1}}{END}', "", [H], ""),
    (DEEPSEEK, f'{RUN}{BEGIN}h{SEP}{{"a": 1}}{END}{OVER[:9]}', "", [H], OVER[:9]),
    (DEEPSEEK, f'{RUN}{BEGIN}h{SEP}{{"a": 1}}', "", NO, f'{RUN}{BEGIN}h{SEP}{{"a": 1}}'),
    (DEEPSEEK, f'{RUN}{BEGIN}h{SEP}{{"a": 1}}{END} b', " b", [H], ""),
    (DEEPSEEK, f"{RUN}{OVER}", f"{RUN}{OVER}", NO, ""),
    (DEEPSEEK, OTHER_TYPE, OTHER_TYPE, NO, ""),
    (DEEPSEEK, f"{RUN}{BEGIN}h{SEP}[1]{END}{OVER}", f"{RUN}{BEGIN}h{SEP}[1]{END}{OVER}", NO, ""),
    (DEEPSEEK, OPEN_FENCE, OPEN_FENCE, NO, ""),
    (LLAMA, '<|python_tag|>{"name": "h", "parameters": {"a": 1}}', "", [H], ""),
    (LLAMA, 'Yes.\n<|python_tag|>{"type": "function", "name": "h", "parameters": {"a": 1}}; {"name": "h"}', "Yes.",
     [H, ToolCall("h", {})], ""),
    (LLAMA, '<|python_tag|>brave_search.call(query="x")', '<|python_tag|>brave_search.call(query="x")', NO, ""),
    (LLAMA, "<|python_tag|>print(1)", "<|python_tag|>print(1)", NO, ""),
    (LLAMA, '<|python_tag|>{"name": "h", "par', "", NO, '<|python_tag|>{"name": "h", "par'),
    (LLAMA, "<|python_tag|>", "", NO, "<|python_tag|>"),
    (LLAMA, '{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}', NO, ""),
    (LLAMA, '{"type": "user", "name": "x"}', '{"type": "user", "name": "x"}', NO, ""),
    (LLAMA, '\n{"name" : "h", "arguments" : {"a": 1}}\n', "", [H], ""),
    (TAGS, "<tool_call>\nnothing much", "<tool_call>\nnothing much", NO, ""),
    (TAGS, 'x\n<tool_call>{"name": "h"}\n</tool>', 'x\n<tool_call>{"name": "h"}\n</tool>', NO, ""),
    (TAGS, '<tool_call>oh <tool_call>{"name": "h", "arguments": {"a": 1}}</tool_call>', "<tool_call>oh ", [H], ""),
    (THINKING, '<think>\nhm\n</think>\n\n{"name": "h", "parameters": {"a": 1}}', "", [H], ""),
    (THINKING, "<think>\nhm\n</think>\n\nNo.", "No.", NO, ""),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "content", "calls", "unfinished"), ANSWERS)
def test_calls_and_what_is_none(
    form: AnswerFormat, text: str, content: str, calls: list[ToolCall], unfinished: str
) -> None:
    answer = split_answer(text, form)
    assert (answer.content, answer.calls, answer.unfinished) == (content, calls, unfinished)
    for cut in range(len(text) + 1):
        splitter, pieces = pieces_of(form, [text[:cut], text[cut:]])
        assert splitter.answer == answer
        assert [piece.call for piece in pieces if piece.call] == calls
    assert pieces_of(form, list(text))[0].answer == answer


SNIPPETS = [
    "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[", "]", ", ", "h", '{"a": "@"}', "{", "}", '"', "\\", "@", "\n", " ", "<",
    RUN, OVER, BEGIN, END, SEP, "function", "\n```json\n", "\n```", "<|python_tag|>", ";", "<tool_call>",
    "</tool_call>", '{"name": "h", "arguments": {"a": "@"}}', '{"name"', '{"type": "function", ', "<｜tool▁", "[TOOL_",
    f'{RUN}{BEGIN}h{SEP}{{"a": "@"}}{END}', f'{BEGIN}function{SEP}h\n```json\n{{"a": "@"}}\n```{END}',
    '[TOOL_CALLS]h[ARGS]{"a": "@"}', '[TOOL_CALLS] [{"name": "h", "arguments": {"a": "@"}}',
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    snippets=st.lists(st.sampled_from(SNIPPETS), max_size=9),
    form=st.sampled_from([TAGS, MISTRAL, DEEPSEEK, LLAMA]),
    data=st.data(),
)
def test_no_cut_changes_anything_and_nothing_is_lost(snippets: list[str], form: AnswerFormat, data: Any) -> None:
    text = "".join(snippets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    splitter, pieces = pieces_of(form, parts)
    whole = split_answer(text, form)
    assert splitter.answer == whole
    assert "".join(piece.text for piece in pieces) == whole.content
    if not whole.calls:
        assert whole.content + whole.unfinished == text
    called = "".join(json.dumps([c.name, c.id, dict(c.arguments)]) for c in whole.calls)
    assert (whole.content + whole.unfinished + called).count("@") == text.count("@")


def test_what_is_no_call_comes_at_once() -> None:
    for form, text in (
        (TAGS, '<tool_call>{"name": "a\n'),
        (TAGS, "<tool_call>n"),
        (MISTRAL, "[TOOL_CALLS] h i"),
        (DEEPSEEK, f"{RUN}{BEGIN}other{SEP}h"),
        (LLAMA, "<|python_tag|>b"),
        (LLAMA, '{"a'),
    ):
        splitter, piece = AnswerSplitter(form), text[-1]
        assert "".join(p.text for p in splitter.push(text[:-1])) == ""
        assert "".join(p.text for p in splitter.push(piece)).rstrip("\n") == text.rstrip("\n")


def test_a_long_argument_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from minfer_models.chat.calls.cursor import JsonScan

    steps, step = [], JsonScan._step
    monkeypatch.setattr(JsonScan, "_step", lambda scan, char: (steps.append(char), step(scan, char))[1])
    for form, start in ((MISTRAL, "[TOOL_CALLS]h[ARGS]"), (DEEPSEEK, f"{RUN}{BEGIN}h{SEP}"), (LLAMA, "<|python_tag|>")):
        splitter = AnswerSplitter(form)
        splitter.push(start + '{"name": "')
        for _ in range(1000):
            assert splitter.push("word ") == []
    assert 15000 <= len(steps) < 16000


@pytest.mark.parametrize("notation", WRITTEN)
def test_a_template_tells_its_notation(notation: str) -> None:
    source, written = WRITTEN[notation]
    template = ChatTemplate(source, {})
    takes_tools = notation not in ("fenced", "separated")
    form = template.answer_format(USER, TOOLS if takes_tools else None)
    assert form.calls == CALLS[notation]
    answer = split_answer(written, form)
    if form.thought_open:
        answer = split_answer("</think>\n\n" + written, form)
    assert (answer.content, answer.calls, answer.unfinished) == ("", [F, G], "")


def test_without_tools_only_a_template_that_takes_none_has_calls() -> None:
    for source in (TAGGED, ARRAY, NAMED, OBJECTS):
        assert ChatTemplate(source, {}).answer_format(USER).calls == "none"
    bare = OBJECTS.replace("tools and loop.first", "false").replace("in tools", "in []")
    assert "tools" not in ChatTemplate(bare, {}).reads()
    assert ChatTemplate(bare, {}).answer_format(USER).calls == "none", "an answer in JSON would be taken for a call"
    for source in (FENCED, SEPARATED):
        with pytest.raises(ChatTemplateError, match="takes no tools"):
            ChatTemplate(source, {}).require_arguments(tools=True)


def test_a_template_for_tools_of_its_own_is_asked_for_its_notation() -> None:
    template = ChatTemplate({"default": FENCED, "tool_use": NAMED}, {})
    assert template.answer_format(USER, TOOLS).calls == "mistral"
    assert template.answer_format(USER).calls == "none", "tools would have gone to the other one"


@pytest.mark.parametrize("notation", ["tags", "named", "fenced", "separated"])
def test_calls_go_on_in_the_conversation_as_they_were_written(notation: str) -> None:
    source, written = WRITTEN[notation]
    template, tools = ChatTemplate(source, {}), TOOLS if "tools" in ChatTemplate(source, {}).reads() else None
    form = template.answer_format(USER, tools)
    said = ("</think>\n\n" if form.thought_open else "") + written
    told = template.render([*USER, split_answer(said, form).as_message()], False, tools=tools)
    assert written in told
    follows = [*USER, split_answer(said, form).as_message(), {"role": "tool", "content": "3"}]
    assert template.render(follows, tools=tools).startswith(told)


def test_a_template_that_insists_on_ids_gets_them() -> None:
    template = ChatTemplate(ARRAY, {})
    message = split_answer(WRITTEN["array"][1], MISTRAL).as_message()
    results = [{"role": "tool", "content": text} for text in ("3", "4")]
    more = [{"role": "user", "content": "b"}, {**message, "tool_calls": message["tool_calls"][:1]}, results[0]]
    told = template.render([*USER, message, *results, *more])
    ids = ["000000001", "000000002", "000000003"]
    assert [part.partition('"')[0] for part in told.split('"id": "')[1:]] == ids
    assert [part.partition('"')[0] for part in told.split('"call_id": "')[1:]] == ids
    named = [{**call, "id": "mine45678"} for call in message["tool_calls"][:1]]
    told = template.render([*USER, {**message, "tool_calls": named}, {**results[0], "tool_call_id": "mine45678"}])
    assert told.count("mine45678") == 2 and "00000000" not in told
    calling = {"role": "assistant", "content": "", "tool_calls": [F.as_message()]}
    loose = ChatTemplate(TAGGED.replace("<tool_call>\n", "{{ c.id is defined }}<tool_call>\n"), {})
    assert "False<tool_call>" in loose.render([*USER, calling]), "others see what was given"


@pytest.mark.parametrize("source", [FENCED, SEPARATED])
@pytest.mark.parametrize("given", [F_JSON, {"a": "} ] </tool_call>"}, "", None])
def test_a_template_that_concatenates_arguments_gets_json(source: str, given: Any) -> None:
    """As `transformers` renders it for a caller who knows that this template wants text."""
    text = "{}" if not given else given if isinstance(given, str) else json.dumps(given)
    messages = [*USER, {"role": "assistant", "content": "", "tool_calls": [F.as_message()]}]
    messages[1]["tool_calls"][0]["function"]["arguments"] = given
    rendered = ChatTemplate(source, {}).render(messages)
    messages[1]["tool_calls"][0]["function"]["arguments"] = text
    expected, _ = render_jinja_template([messages], chat_template=source, add_generation_prompt=True)
    assert rendered == expected[0]
    with pytest.raises(ChatTemplateError, match="arguments is not JSON"):
        messages[1]["tool_calls"][0]["function"]["arguments"] = "{"
        ChatTemplate(source, {}).render(messages)


def test_json_in_python_notation_is_no_json() -> None:
    """A template that prints arguments as they are gets them as text: printed, an object would have single quotes."""
    source = TAGGED.replace("c.function.arguments | tojson", "c.function.arguments")
    template = ChatTemplate(source, {})
    rendered = template.render([*USER, {"role": "assistant", "content": "", "tool_calls": [G.as_message()]}])
    assert G_JSON in rendered
    assert template.answer_format(USER, TOOLS).calls == "tags"
