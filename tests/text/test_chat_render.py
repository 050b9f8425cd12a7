"""Rendering: byte for byte what `transformers` renders, and a clear error for what cannot be rendered."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pytest
from chat_samples import CHATS, CONSTRUCTS, CONTENT, ROLES, TOOLS, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import TEXT
from transformers.utils.chat_template_utils import render_jinja_template

from minfer_models.chat import ChatTemplate, ChatTemplateError


def special_tokens(meta: dict[str, Any]) -> dict[str, str]:
    """`bos_token` and so on, as `transformers` passes them."""
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    ids = {name: meta.get(f"tokenizer.ggml.{key}_token_id") for key, name in names.items()}
    return {f"{name}_token": meta["tokenizer.ggml.tokens"][i] for name, i in ids.items() if i is not None}


def hf_render(meta: dict[str, Any], messages: list[Message], add_generation_prompt: bool = True, **options: Any) -> str:
    template = meta["tokenizer.chat_template"]
    variables = {**special_tokens(meta), **options}
    rendered, _ = render_jinja_template(
        [messages], chat_template=template, add_generation_prompt=add_generation_prompt, **variables
    )
    return rendered[0]


@pytest.fixture(scope="module", params=["qwen", "llama", "smol"])
def meta(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.getfixturevalue(f"{request.param}_meta")


@pytest.fixture(scope="module")
def template(meta: dict[str, Any]) -> ChatTemplate:
    return ChatTemplate.from_metadata(meta)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_rendering_equals_transformers(
    meta: dict[str, Any], template: ChatTemplate, chat: str, prompt: bool, tools: list[Message] | None
) -> None:
    rendered = template.render(CHATS[chat], add_generation_prompt=prompt, tools=tools)
    assert rendered == hf_render(meta, CHATS[chat], prompt, tools=tools)
    assert type(rendered) is str


@pytest.mark.parametrize("thinking", [True, False])
def test_options_reach_the_template(qwen_meta: dict[str, Any], thinking: bool) -> None:
    rendered = ChatTemplate.from_metadata(qwen_meta).render(CHATS["user"], enable_thinking=thinking)
    assert rendered == hf_render(qwen_meta, CHATS["user"], enable_thinking=thinking)
    assert rendered.endswith("<|im_start|>assistant\n") is thinking


@settings(max_examples=100, deadline=None)
@given(
    messages=st.lists(st.fixed_dictionaries({"role": ROLES, "content": CONTENT}), min_size=1, max_size=5),
    prompt=st.booleans(),
)
def test_rendering_any_text_equals_transformers(
    meta: dict[str, Any], template: ChatTemplate, messages: list[Message], prompt: bool
) -> None:
    assert template.render(messages, prompt) == hf_render(meta, messages, prompt)


@settings(max_examples=60, deadline=None)
@given(content=st.one_of(st.sampled_from(["Hello", "", "a\nbl\r\nl", "<&>'\"", "l l  le"]), TEXT))
def test_every_construct_renders_as_in_transformers(content: str) -> None:
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Hello"}]
    ours = ChatTemplate(CONSTRUCTS, {}).render(messages)
    assert ours == hf_render({"tokenizer.chat_template": CONSTRUCTS, "tokenizer.ggml.tokens": []}, messages)


def test_the_clock_is_given(qwen_meta: dict[str, Any]) -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    clock = lambda: datetime(2024, 7, 26)  # noqa: E731
    meta = {**qwen_meta, "tokenizer.chat_template": source + "{% for m in messages %}{{ m.content }}{% endfor %}"}
    assert ChatTemplate.from_metadata(meta, clock=clock).render([]) == "26 Jul 2024"
    assert re.fullmatch(r"\d\d \w+ \d{4}", ChatTemplate(source, {}).render([]))


ALTERNATING = """{% for m in messages %}
{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate!') }}{% endif %}
{% endfor %}ok"""


def test_a_refusal_keeps_the_words_of_the_template() -> None:
    template = ChatTemplate(ALTERNATING, {})
    assert template.render([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]) == "ok"
    with pytest.raises(ChatTemplateError, match="refuses these messages: Roles must alternate!") as error:
        template.render([{"role": "user", "content": ""}] * 2)
    assert error.value.refusal == "Roles must alternate!"


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ x", "{% for m in messages %}", "{{ x | no_such_filter }}", "{% frob %}"]
)
def test_a_template_that_does_not_parse_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="does not parse at its line 2"):
        ChatTemplate("\n" + source, {})


def test_a_template_nested_too_deep_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="RecursionError"):
        ChatTemplate("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", {})


def test_a_template_that_fails_is_not_replaced(llama_meta: dict[str, Any]) -> None:
    with pytest.raises(ChatTemplateError, match="bos_token"):
        ChatTemplate(llama_meta["tokenizer.chat_template"], {}).render(CHATS["user"])


def calling(arguments: object) -> list[Message]:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": "ü", "b": [1, null]}', {"a": "ü", "b": [1, None]}),
        ("", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ("{}", {}),
    ],
)
def test_tool_call_arguments_reach_the_template_as_an_object(
    qwen_meta: dict[str, Any], arguments: object, expected: dict[str, Any]
) -> None:
    messages = calling(arguments)
    before = json.dumps(messages)
    rendered = ChatTemplate.from_metadata(qwen_meta).render(messages)
    assert rendered == hf_render(qwen_meta, calling(expected))
    assert json.dumps(messages) == before
    items = ChatTemplate(
        "{% for k, v in messages[1].tool_calls[0].function.arguments | items %}{{ k }};{% endfor %}", {}
    )
    assert items.render(messages) == "".join(f"{key};" for key in expected)


@pytest.mark.parametrize("arguments", ["[1,2,3]", "42", "not json", '"x"', 7, [1]])
def test_tool_call_arguments_that_are_no_object_are_refused(qwen_meta: dict[str, Any], arguments: object) -> None:
    place = r"messages\[1\]\.tool_calls\[0\]\.function\.arguments is "
    with pytest.raises(ChatTemplateError, match=place):
        ChatTemplate.from_metadata(qwen_meta).render(calling(arguments))


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", "messages is a str"),
        ({"role": "user"}, "messages is a dict"),
        (["hi"], r"messages\[0\] is a str"),
        ([{"role": "user", "content": "x"}, {"content": "x"}], r"messages\[1\]\.role is None"),
        ([{"role": 3}], r"messages\[0\]\.role is 3"),
        ([{"role": "user", "content": b"x"}], r"messages\[0\]\.content is a bytes"),
        ([{"role": "user", "content": [{"x": {1}}]}], r"messages\[0\]\.content\[0\]\.x is a set"),
        ([{"role": "assistant", "tool_calls": ["x"]}], r"messages\[0\]\.tool_calls\[0\] is 'x'"),
    ],
)
def test_malformed_messages_are_named(smol_meta: dict[str, Any], messages: Any, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate.from_metadata(smol_meta).render(messages)


def test_options_must_be_data(smol_meta: dict[str, Any]) -> None:
    with pytest.raises(ChatTemplateError, match="helper is a builtin_function_or_method"):
        ChatTemplate.from_metadata(smol_meta).render(CHATS["user"], helper=print)
