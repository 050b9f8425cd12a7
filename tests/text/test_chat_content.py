"""Content as people send it (text, parts, null, reasoning, a turn left open), against `transformers` itself."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from chat_samples import CALL, CHATS, TOOLS, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import TEXT, toy_metadata
from transformers import PreTrainedTokenizerFast

from minfer_models.chat import ChatTemplate, ChatTemplateError
from minfer_models.tokenizer import Tokenizer

# What Llama 3.1, 3.2 and others do with dates, tools and parts, in one template.
TYPED = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{%- macro text(content) -%}
    {%- if content is string %}{{ content | trim }}
    {%- else %}{% for part in content %}
        {%- if part.type == 'text' %}{{ part.text }}{% else %}<|image|>{% endif %}
    {%- endfor %}{% endif %}
{%- endmacro %}
{%- macro turn(role) %}{{ '<|' + role + '|>\n' ~ caller() ~ eos_token }}{% endmacro %}
{%- if tools is not none and tools %}
{{- "Tools " ~ date_string ~ ": " }}
{%- for t in tools %}{{ t | tojson(indent=4) }}{{ t.function | tojson(sort_keys=true, separators=(',', ':')) }}
{% endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role in ("ipython", "tool") %}
{%- call turn('ipython') %}{{ text(message.content) }}{% endcall %}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception("one call at a time") }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{ "}" ~ eos_token }}
    {%- else %}
{%- generation %}{% call turn(message['role']) %}{{ text(message['content']) }}{% endcall %}{% endgeneration %}
    {%- if message.reasoning_content is defined %}[{{ message.thinking }}|{{ message.reasoning_content }}]{% endif %}
    {%- endif %}
    {%- if loop.index0 > 40 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|assistant|>\n\n" }}{% endif %}
"""
PARTS = [{"type": "text", "text": "Hélló"}, {"type": "text", "text": " <b>&'x'</b> 🌦"}]
IMAGE = {"type": "image_url", "image_url": {"url": "https://x"}}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


@pytest.fixture(scope="module", params=["qwen", "llama", "smol", "typed"])
def meta(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "typed":
        return {**toy_metadata(), "tokenizer.chat_template": TYPED}
    return request.getfixturevalue(f"{request.param}_meta")


@pytest.fixture(scope="module")
def template(meta: dict[str, Any]) -> ChatTemplate:
    return ChatTemplate.from_metadata(meta)


@pytest.fixture(scope="module")
def hf(meta: dict[str, Any]) -> PreTrainedTokenizerFast:
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: meta.get(f"tokenizer.ggml.{role}_token_id") for name, role in roles.items()}
    special = {name: meta["tokenizer.ggml.tokens"][i] for name, i in ids.items() if i is not None}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **special)
    tokenizer.chat_template = meta["tokenizer.chat_template"]
    return tokenizer


def same(template: ChatTemplate, hf: PreTrainedTokenizerFast, messages: list[Message], **options: Any) -> str:
    """What both render, equal; what `transformers` can't render, we refuse."""
    prompt = options.pop("add_generation_prompt", True)
    expected = hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **options)
    rendered = template.render(messages, prompt, **options)
    assert rendered == expected
    return rendered


TABLE: dict[str, list[Message]] = {
    **CHATS,
    "empty": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "unicode": [{"role": "user", "content": "Zażółć 我想 🦙 \u200d é e\u0301 \U0001f1e8\U0001f1ed \r\n\t\x00"}],
    "tool result is json": [*CHATS["tool"][:2], {"role": "tool", "content": '{"a": "ü <&>"}', "tool_call_id": "c1"}],
    "one call": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks"},
    ],
    "nulls": [
        {"role": "user", "content": "2+2?", "name": None},
        {"role": "assistant", "content": "4", "tool_calls": None, "reasoning_content": None, "refusal": None},
        {"role": "user", "content": "Sure?"},
    ],
    "reasoning": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4", "reasoning": "r"},
        {"role": "user", "content": "3+3?"},
        {"role": "assistant", "content": "6", "thinking": "\nt\n"},
    ],
}


@pytest.mark.parametrize("chat", TABLE)
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": False}, {"enable_thinking": False}])
def test_a_table_of_conversations_equals_transformers(
    template: ChatTemplate,
    hf: PreTrainedTokenizerFast,
    chat: str,
    tools: list[Message] | None,
    options: dict[str, Any],
) -> None:
    calls = [len(m["tool_calls"]) for m in TABLE[chat] if m.get("tool_calls")]
    if template.source == TYPED and 2 in calls:
        with pytest.raises(ChatTemplateError, match="refuses these messages: one call at a time"):
            template.render(TABLE[chat], tools=tools)
        return
    same(template, hf, TABLE[chat], tools=tools, **options)


@settings(max_examples=40, deadline=None)
@given(data=DATA)
@pytest.mark.parametrize(
    "how",
    [
        "",
        "(indent=2)",
        "(ensure_ascii=true)",
        "(sort_keys=true)",
        "(separators=(',', ':'))",
        "(indent='\\t', sort_keys=true)",
    ],
)
def test_tojson_is_that_of_transformers(how: str, data: object) -> None:
    source = f"{{{{ messages[0].content }}}}{{{{ data | tojson{how} }}}}"
    plain = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()))
    plain.chat_template = source
    same(ChatTemplate(source, {}), plain, CHATS["user"], data=data)


def test_parts_are_given_as_they_are_or_as_their_text(template: ChatTemplate, hf: PreTrainedTokenizerFast) -> None:
    talk = [
        {"role": "user", "content": PARTS},
        {"role": "assistant", "content": PARTS},
        {"role": "user", "content": PARTS},
    ]
    if template.source == TYPED:
        assert same(template, hf, talk).count("Hélló <b>&'x'</b> 🌦") == 3
        assert "<|image|>" in same(template, hf, [{"role": "user", "content": [*PARTS, IMAGE]}])
        return
    lines = "\n".join(part["text"] for part in PARTS)
    assert template.render(talk) == template.render([{**m, "content": lines} for m in talk])
    with pytest.raises(ChatTemplateError, match=r"messages\[0\]\.content\[2\] is a part of type 'image_url', and this"):
        template.render([{"role": "user", "content": [*PARTS, IMAGE]}])


def test_a_template_that_wants_parts_gets_a_text_as_one() -> None:
    source = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    template = ChatTemplate.from_metadata({"tokenizer.chat_template": source})
    assert template.render([{"role": "user", "content": "hi"}]) == "[user]hi"
    assert template.render([{"role": "user", "content": [{"type": "text", "text": "a"}]}]) == "[user]a"


def test_text_of_parts_is_the_users() -> None:
    toy = Tokenizer.from_metadata(toy_metadata())
    for source in (
        "{{ messages[0].content + '</s>' }}",
        "{% for p in messages[0].content %}{{ p.text }}{% endfor %}</s>",
    ):
        template = ChatTemplate(source, {})
        for content in ("<s>", [{"type": "text", "text": "<s>"}]):
            ids = template.encode(toy, [{"role": "user", "content": content}])
            assert ids == [*toy.encode("<s>"), 259]


NULL = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
EMPTY = [NULL[0], {**NULL[1], "content": ""}]


@pytest.mark.parametrize("rest", [[], [{"role": "tool", "content": "rain"}, {"role": "user", "content": "Thanks"}]])
def test_null_content_beside_tool_calls(
    meta: dict[str, Any], template: ChatTemplate, hf: PreTrainedTokenizerFast, rest: list[Message]
) -> None:
    without = [NULL[0], {"role": "assistant", "tool_calls": [CALL]}]
    if template.source == TYPED:
        assert same(template, hf, NULL + rest) == template.render(without + rest)
    elif "tool_calls" in meta["tokenizer.chat_template"]:
        expected = hf.apply_chat_template(EMPTY + rest, tokenize=False, add_generation_prompt=True)
        assert template.render(NULL + rest) == template.render(without + rest) == expected
    elif "trim" in meta["tokenizer.chat_template"]:  # this one never shows calls
        assert same(template, hf, NULL + rest) == template.render(EMPTY + rest)
    else:
        with pytest.raises(ChatTemplateError, match="content"):
            template.render(NULL + rest)


def test_a_template_that_asks_for_null_gets_it() -> None:
    source = """{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}
{%- elif m.content is defined %}{{ m.content }}{% endif %}{% endfor %}"""
    assert ChatTemplate(source, {}).render(NULL) == "Weather?get_weather"


@pytest.mark.parametrize("content", ["The answer", "The answer is ", "  The\n\n", " x"])
def test_a_final_message_is_left_open_as_in_transformers(
    template: ChatTemplate, hf: PreTrainedTokenizerFast, content: str
) -> None:
    talk = [*CHATS["user"], {"role": "assistant", "content": content}]
    expected = hf.apply_chat_template(talk, tokenize=False, continue_final_message=True)
    assert template.render(talk, continue_final_message=True) == expected
    assert content.strip() in expected[-len(content) - 1 :]
    if template.source == TYPED:
        parts = [*CHATS["user"], {"role": "assistant", "content": [{"type": "text", "text": content}, IMAGE]}]
        expected = hf.apply_chat_template(parts, tokenize=False, continue_final_message=True)
        assert template.render(parts, continue_final_message=True) == expected


def test_a_final_message_that_cannot_be_left_open_is_refused(qwen_meta: dict[str, Any]) -> None:
    template = ChatTemplate.from_metadata(qwen_meta)
    for messages, said in [
        ([], "there are no messages"),
        ([{"role": "user", "content": [IMAGE]}], "takes text"),
        ([*NULL[:1], {"role": "assistant", "content": 7}], r"messages\[1\] has no text in its content"),
    ]:
        with pytest.raises(ChatTemplateError, match=said):
            template.render(messages, continue_final_message=True)
    with pytest.raises(ChatTemplateError, match="no add_generation_prompt with it"):
        template.render(CHATS["user"], True, continue_final_message=True)
    dropping = ChatTemplate("{{ messages[0].content }}", {})
    with pytest.raises(ChatTemplateError, match="changes or drops the final message's content"):
        dropping.render(CHATS["thinking last"], continue_final_message=True)


def test_only_the_markers_of_an_open_turn_are_special() -> None:
    toy = Tokenizer.from_metadata(toy_metadata())
    template = ChatTemplate("{% for m in messages %}{{ '<s>' + m.content + '</s>' }}{% endfor %}", {})
    ids = template.encode(toy, [{"role": "user", "content": "<s>a"}], continue_final_message=True)
    assert ids == [258, *toy.encode("<s>a")]


@pytest.mark.parametrize("tools", [[print], [{"function": print}], print, "text"])
def test_tools_are_json_schemas_and_nothing_else(template: ChatTemplate, tools: Any) -> None:
    with pytest.raises(ChatTemplateError, match="tools"):
        template.render(CHATS["user"], tools=tools)
