"""Which template a model talks through, and what is refused before anybody talks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from text_samples import toy_metadata

from minfer_models.chat import ChatTemplate, ChatTemplateError
from minfer_models.tokenizer import Tokenizer

KEY = "tokenizer.chat_template"
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def loaded(source: object, **more: object) -> ChatTemplate:
    return ChatTemplate.from_metadata({KEY: source, **more})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "{% for m in messages %}\n{{ strftime_nw('%d') }}{{ m.content }}\n{% endfor %}",
            r"line 2: strftime_nw\(\) is called, and nothing of that name is defined \(in `\{\{ strftime_nw",
        ),
        ("{{ messages[0].content }}\n{% include 'x' %}", r"line 2: \{% include %\} needs another file"),
        ("{{ messages[0].content }}\n{{ 'a' | frob }}", "line 2: [Nn]o filter (is )?named 'frob'"),
        ("{{ messages[0].content }}\n{% if x is frob %}{% endif %}", "line 2: [Nn]o test (is )?named 'frob'"),
        ("{{ messages[0].content.shout() }}", "line 1: UndefinedError: .*shout.*; tried with a conversation of user"),
        (
            "{{ messages[-1].content }}{% if messages | length > 2 %}\n{{ messages[1].content + 1 }}{% endif %}",
            "line 2: TypeError: .*; tried with a conversation of user, assistant, user",
        ),
        (
            "{{ messages[-1].content }}{% if messages[0].role == 'system' %}\n{{ none.x.y }}{% endif %}",
            "line 2: UndefinedError: .*; tried with a conversation of system, user$",
        ),
        ("{{ messages[0].role }}", "leaves out what the user says; tried with a conversation of user"),
        ("{{ messages[0].content }}", "leaves out what the user says; tried with a conversation of user, assistant"),
        ("{{ raise_exception('never') }}", "refuses every conversation that was tried, .*: never"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more work"),
        ("{{ messages[-1].content * 99999999 }}", "a text of"),
    ],
)
def test_a_template_that_cannot_hold_a_chat_is_refused_when_it_loads(
    source: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minfer_models.chat.budget.MAX_WORK", 1 << 19)
    with pytest.raises(ChatTemplateError, match=said):
        loaded(source)


REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" + PLAIN
GUARDED = "{% if strftime_nw is defined %}{{ strftime_nw('%d') }}{% endif %}" + PLAIN
GUARDED_FILTER = "{% if 'frob' is filter %}{{ 'a' | frob }}{% endif %}" + PLAIN
BROKEN_TOOLS = "{% if tools %}{{ tools[0].x.y }}{% endif %}" + PLAIN


@pytest.mark.parametrize("source", [PLAIN, REFUSES_SYSTEM, NEEDS_SYSTEM, GUARDED, GUARDED_FILTER, BROKEN_TOOLS])
def test_a_template_may_refuse_some_conversations(source: str) -> None:
    messages = [{"role": "system", "content": "s"}, *USER] if source == NEEDS_SYSTEM else USER
    assert loaded(source).render(messages).endswith("[user]hi")


def test_all_that_is_tried_shares_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    work = "{% for i in range(90000) %}{% endfor %}" + PLAIN
    once = ChatTemplate(work, {})
    monkeypatch.setattr("minfer_models.chat.budget.MAX_WORK", 2_000_000)
    once.render(USER)
    with pytest.raises(ChatTemplateError, match="more work"):
        loaded(work)


def chatml_metadata() -> dict[str, Any]:
    meta = toy_metadata()
    for text in ("<|im_start|>", "<|im_end|>"):
        meta["tokenizer.ggml.tokens"] = [*meta["tokenizer.ggml.tokens"], text]
        meta["tokenizer.ggml.token_type"] = [*meta["tokenizer.ggml.token_type"], 3]
    return meta


def test_no_template_is_chatml_announced(caplog: pytest.LogCaptureFixture) -> None:
    meta = chatml_metadata()
    with caplog.at_level(logging.WARNING, "minfer_models"):
        template = ChatTemplate.from_metadata(meta)
    assert (template.announced, template.origin) == (True, "chatml")
    assert [r.getMessage() for r in caplog.records] == [
        "this model has no chat template (tokenizer.chat_template): ChatML is used (<|im_start|> <|im_end|>)"
    ]
    messages = [{"role": "system", "content": "s<|im_end|>"}, *USER]
    expected = "<|im_start|>system\ns<|im_end|><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(messages) == expected
    assert template.render(messages, False) == expected.removesuffix("<|im_start|>assistant\n")
    tokenizer = Tokenizer.from_metadata(meta)
    start, end = (tokenizer.special_id(marker) for marker in ("<|im_start|>", "<|im_end|>"))
    assert [i for i in template.encode(tokenizer, messages) if i in (start, end)] == [start, end, start, end, start]
    assert end in tokenizer.eog


@pytest.mark.parametrize("lacking", [["<|im_start|>"], ["<|im_end|>"], ["<|im_start|>", "<|im_end|>"]])
def test_chatml_needs_its_markers_in_the_vocabulary(lacking: list[str]) -> None:
    meta = chatml_metadata()
    meta["tokenizer.ggml.tokens"] = [f"x{t}" if t in lacking else t for t in meta["tokenizer.ggml.tokens"]]
    named = r" or ".join(lacking).replace("|", r"\|")
    with pytest.raises(ChatTemplateError, match=f"no chat template .*has no token {named}, so ChatML can't be used"):
        ChatTemplate.from_metadata(meta)
    assert ChatTemplate.from_metadata(meta, given=PLAIN).render(USER) == "[user]hi"


def test_a_marker_that_is_ordinary_text_is_none() -> None:
    meta = chatml_metadata()
    meta["tokenizer.ggml.token_type"] = [*meta["tokenizer.ggml.token_type"][:-2], 1, 3]
    with pytest.raises(ChatTemplateError, match=r"has no token <\|im_start\|>, so"):
        ChatTemplate.from_metadata(meta)


def test_a_template_that_is_there_is_never_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ChatTemplateError, match="does not parse"):
        ChatTemplate.from_metadata({**chatml_metadata(), KEY: "{% if %}"})
    with caplog.at_level(logging.WARNING, "minfer_models"):
        assert not ChatTemplate.from_metadata({**chatml_metadata(), KEY: PLAIN}).announced
    assert not caplog.records


NAMED = {
    KEY: PLAIN,
    "tokenizer.chat_templates": ["default", "tool_use", "rag"],
    f"{KEY}.tool_use": "T{{ tools | length if tools }}" + PLAIN,
    f"{KEY}.rag": "R" + PLAIN,
}


def test_named_templates_are_chosen_as_transformers_does() -> None:
    template = ChatTemplate.from_metadata(NAMED)
    assert template.render(USER) == "[user]hi"
    assert template.render(USER, tools=TOOLS) == "T1[user]hi"
    assert template.render(USER, template="rag", tools=TOOLS) == "R[user]hi"
    with pytest.raises(ChatTemplateError, match="no chat template 'rug'; this model has default, tool_use, rag"):
        template.render(USER, template="rug")
    template.require_arguments(tools=True)
    assert "tools" in template.reads(tools=True)
    assert "tools" not in template.reads()
    only = ChatTemplate.from_metadata({key: value for key, value in NAMED.items() if "chat_templates" not in key})
    assert only.render(USER, template="rag") == "R[user]hi"


def test_named_templates_are_looked_at_when_they_can_be_chosen_by_themselves() -> None:
    with pytest.raises(ChatTemplateError, match="the chat template 'tool_use' does not parse at its line 2"):
        ChatTemplate.from_metadata({**NAMED, f"{KEY}.tool_use": "\n{{ x"})
    with pytest.raises(ChatTemplateError, match=r"names a template that isn't there: tokenizer.chat_template.x"):
        ChatTemplate.from_metadata({**NAMED, "tokenizer.chat_templates": ["x"]})
    with pytest.raises(ChatTemplateError, match="there is no chat template 'default'; this model has rag"):
        ChatTemplate.from_metadata({f"{KEY}.rag": PLAIN})


@pytest.mark.parametrize("value", [7, ["a"], b"x", {"default": PLAIN}])
def test_a_template_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ChatTemplateError, match=rf"{KEY} is a {type(value).__name__}, not a template"):
        loaded(value)


def test_a_template_far_too_long_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match=r"has 262145 characters, over the 262144"):
        loaded("a" * (1 << 18) + "b")


def test_another_template_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("F{{ 'ü' }}" + PLAIN + "\n", encoding="utf-8")
    assert ChatTemplate.from_metadata(NAMED, given=file).render(USER) == "Fü[user]hi"
    assert ChatTemplate.from_metadata(NAMED, given="rag").render(USER) == "R[user]hi"
    given = ChatTemplate.from_metadata(NAMED, given="G" + PLAIN)
    assert (given.render(USER, tools=TOOLS), given.origin) == ("G[user]hi", "given")
    with pytest.raises(ChatTemplateError, match=r"'rug' is neither .* this model has default, tool_use, rag"):
        ChatTemplate.from_metadata(NAMED, given="rug")
    file.write_bytes(b"{{ '\xff' }}")
    with pytest.raises(ChatTemplateError, match=r"t\.jinja: the template isn't UTF-8: .* at byte 4"):
        ChatTemplate.from_metadata(NAMED, given=file)


def test_arguments_that_a_template_never_reads_are_refused(qwen_meta: dict[str, Any]) -> None:
    template = ChatTemplate.from_metadata(qwen_meta)
    template.require_arguments(["enable_thinking"], tools=True)
    with pytest.raises(ChatTemplateError, match=r"has no argument 'enable_thinkng'; it reads enable_thinking$"):
        template.require_arguments(["enable_thinkng"])
    with pytest.raises(ChatTemplateError, match="messages is no argument of a template"):
        template.require_arguments(["messages"])
    with pytest.raises(ChatTemplateError, match="takes no tools: the model would never see them"):
        loaded(PLAIN).require_arguments(tools=True)
    loaded(PLAIN).require_arguments([], tools=False)
    source = "{% if not a is defined %}{% set a = 1 %}{% endif %}{% set b = b | default(2) %}{% if c %}{% set d = 1 %}"
    assert loaded(source + "{% endif %}{{ d }}" + PLAIN).reads() == {"a", "b", "c", "messages"}
