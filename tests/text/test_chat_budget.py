"""What a template may cost: a short one that asks for much is refused before it gets it, and real ones never notice."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from chat_samples import CHATS, TOOLS

from minfer_models.chat import ChatTemplate, ChatTemplateError
from minfer_models.chat.budget import MAX_ITEMS, MAX_TEXT, MAX_WIDTH, MAX_WORK, Budget
from minfer_models.chat.environment import ChatEnvironment

MESSAGES = [{"role": "user", "content": "hi"}]
REPEAT = "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ %s }}"
NESTED = ("[1]", "[ns.x, ns.x]")

# (template, what is said); each would take gigabytes or minutes.
TOO_MUCH = [
    ("{{ '%1000000000d' % 1 }}", "a width of 1000000000 is over"),
    ("{{ '%.*f' % (1000000000, 1.5) }}", "a width of 1000000000"),
    ("{{ '%(x)1000000000d' % {'x': 1} }}", "a width of 1000000000"),
    ("{{ '%1000000000d' | format(1) }}", "a width of 1000000000"),
    ("{{ ('%s' * 50000) % (('a' * 1000,) * 50000) }}", "a text of"),
    ("{{ '{:>2000000000}'.format(1) }}", "a width of 2000000000"),
    ("{{ '{:{}}'.format(1, 2000000000) }}", "a width of 2000000000"),
    ("{{ '{x:.2000000000f}'.format_map({'x': 1.5}) }}", "a width of 2000000000"),
    ("{{ ('{0}' * 100000).format('a' * 100000) }}", "a text of"),
    ("{{ 'a'.ljust(2000000000) }}", "a width of 2000000000"),
    ("{{ 'a'.rjust(2000000000) }}", "a width of 2000000000"),
    ("{{ 'a'.center(2000000000) }}", "a width of 2000000000"),
    ("{{ 'a'.zfill(2000000000) }}", "a width of 2000000000"),
    ("{{ messages[0].content.zfill(2000000000) }}", "a width of 2000000000"),
    ("{{ '\t'.expandtabs(2000000000) }}", "a width of 2000000000"),
    ("{{ ('\t' * 100000).expandtabs(60000) }}", "a text of 6000"),
    ("{{ 'a' | center(2000000000) }}", "a width of 2000000000"),
    ("{{ ('a\n' * 1000000) | indent(2000) }}", "a text of"),
    ("{{ ('a\n' * 1000000) | indent('b' * 60000) }}", "a text of"),
    ("{{ ('a ' * 1000000) | wordwrap(1, true, 'b' * 60000) }}", "a text of"),
    ("{{ [[1] * 1000] | tojson(indent=60000) }}", "a text of"),
    ("{{ [1] | batch(100000000, 'x') | list }}", "a width of 100000000"),
    ("{{ [1] | slice(100000000) | list }}", "a width of 100000000"),
    ("{{ 1.5 | round(1000000000, 'ceil') }}", "a width of 1000000000"),
    ("{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", "a text of 10000000000"),
    ("{{ ('a' * 100000).replace('', 'b' * 100000) }}", "a text of"),
    ("{{ 'a'.translate({97: 'b' * 100000}) * 1000 }}", "a text of"),
    ("{{ ('b' * 100000).join('a' * 100000) }}", "a text of"),
    ("{{ ('a' * 100000) | join('b' * 100000) }}", "a text of"),
    ("{{ ('a' * 5000000) | list | length }}", "5000000 items"),
    ("{{ ('a ' * 5000000).split() | length }}", "items"),
    ("{{ ('a,' * 5000000).split(',') | length }}", "5000000 items"),
    ("{{ ('a\n' * 5000000).splitlines() | length }}", "5000000 items"),
    ("{{ ([[0] * 99] * 99) | sum(start=[]) | length }}", "sum starts from a list"),
    ("{% set x = 'a' * 10000000 %}{{ x ~ x }}", "a text of 20000000"),
    (REPEAT % ("'ab'", "ns.x ~ ns.x", "ns.x | length"), "a text of 33554432"),
    (REPEAT % ("'ab'", "ns.x + ns.x", "ns.x | length"), "a text of 33554432"),
    (REPEAT % ("messages[0].content", "ns.x + ns.x", "ns.x | length"), "a text of 33554432"),
    (REPEAT % ("[1]", "ns.x + ns.x", "ns.x | length"), "2097152 items"),
    (REPEAT % ("messages", "ns.x + ns.x", "ns.x | length"), "2097152 items"),
    (REPEAT % ("3", "ns.x * ns.x", "ns.x"), "an integer of"),
    ("{{ ('f' * 10000) | int(0, 16) }}", "an integer of 40000 bits"),
    (REPEAT % (*NESTED, "ns.x"), "items are over"),
    (REPEAT % (*NESTED, "ns.x | tojson"), "items are over"),
    (REPEAT % (*NESTED, "ns.x | string"), "items are over"),
    (REPEAT % (*NESTED, "'%s' % ns.x"), "items are over"),
    (REPEAT % (*NESTED, "'{}'.format(ns.x)"), "items are over"),
    (REPEAT % (*NESTED, "'{!r}'.format(ns.x)"), "items are over"),
    (REPEAT % (*NESTED, "'a' ~ ns.x"), "items are over"),
    (REPEAT % (*NESTED, "[ns.x] | join"), "items are over"),
    (REPEAT % (*NESTED, "dict(a=ns.x).items()"), "items are over"),
    (REPEAT % (*NESTED, "raise_exception(ns.x)"), "items are over"),
    (REPEAT % (*NESTED, "ns.x == [ns.x, ns.x]"), "items are over"),
    (REPEAT % (*NESTED, "[ns.x, 1] | unique | list"), "items are over"),
    (REPEAT % ("(1,)", "(ns.x, ns.x)", "{ns.x: 1}"), "items are over"),
    (REPEAT % ("(1,)", "(ns.x, ns.x)", "{}[ns.x]"), "items are over"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more work"),
    ("{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}", "more work"),
    (
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ loop.index and '' }}{% endfor %}{% endfor %}",
        "more work",
    ),
    ("{% for i in range(99999) %}{% for j in range(1000) %}{{ 'a' * 9999 }}{% endfor %}{% endfor %}", "a text of"),
    ("{% for i in range(99999) %}{{ (range(99999) | list | length) and '' }}{% endfor %}", "more work"),
    ("{% for i in range(99999) %}{{ ('a' * 9999999 == 'b') and '' }}{% endfor %}", "more work"),
    ("{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{{ 'b' in x or '' }}{% endfor %}", "more work"),
    ("{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{{ x[1:] and '' }}{% endfor %}", "more work"),
    ("{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{{ x.find('b') and '' }}{% endfor %}", "more work"),
    ("{% set x = 'a' * 9999999 %}{% for i in range(99999) %}{{ x is lower and '' }}{% endfor %}", "more work"),
    ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "more work"),
    (
        "{% for x in [[1, 1]] recursive %}{% if loop.depth < 60 %}{{ loop([x, x]) }}{% endif %}{% endfor %}",
        "more work",
    ),
    ("{{ ('a' * 1000).encode() }}", "access to attribute 'encode'"),
    ("{{ (1).to_bytes(1000000000, 'big') }}", "access to attribute 'to_bytes'"),
    ("{{ (lipsum | default(none))(n=100000) }}", "'NoneType' object is not callable"),
    ("{{ strftime_now('%Y' * 1000000) }}", "a width of 2000000"),
]


@pytest.mark.parametrize(("source", "message"), TOO_MUCH)
def test_a_template_that_asks_for_too_much_is_refused(
    source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if message == "more work":
        monkeypatch.setattr("minfer_models.chat.budget.MAX_WORK", MAX_WORK >> 4)
    template = ChatTemplate(source, {})
    if message not in ("more work", "items are over"):
        tracemalloc.start()
    with pytest.raises(ChatTemplateError, match=message) as caught:
        template.render(MESSAGES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(str(caught.value)) < 300
    assert peak < 300 << 20


@pytest.mark.parametrize(
    "source",
    ["{{ 'a' | center(2000000000) }}", "{{ 'a' * 2000000000 }}", "{% if 'a'.ljust(2000000000) %}{% endif %}"],
)
def test_nothing_is_computed_when_a_template_compiles(source: str) -> None:
    tracemalloc.start()
    ChatTemplate("{% if false %}" + source + "{% endif %}", {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ '%05d|%-4s|%.2f|%%|%(x)s' % {'x': 1} if false else '%05d|%-4s|%.2f|%%' % (7, 'a', 1.5) }}", None),
        ("{{ 'a'.ljust(5) ~ 'b'.rjust(5) ~ 'c'.center(5) ~ '7'.zfill(3) }}|", "a        b  c  007|"),
        ("{{ '{:>5}|{x!r:^7}|{:.1f}'.format(1, 2.25, x='b') }}", "    1|  'b'  |2.2"),
        ("{{ '{a[b]}'.format_map({'a': {'b': 3}}) }}", "3"),
        ("{{ 'a\nb' | indent(3) }}{{ 'x' | center(3) }}{{ 'a b' | wordwrap(1) }}", "a\n   b x a\nb"),
        ("{{ [1, 2, 3] | batch(2) | list }}{{ 2.567 | round(1) }}{{ [1, 2] | sum }}", "[[1, 2], [3]]2.63"),
        ("{{ ', '.join(range(3) | map('string')) }}{{ range(3) | join('-') }}", "0, 1, 20-1-2"),
        ("{{ {'a': [1]} | tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{% for x in 'abc' %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}", "3Falsea3Falseb3Truec"),
        ("{% for x in [1, 2, 3] | select('odd') %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}", "2123"),
        ("{% for x in [] %}a{% else %}none{% endfor %}{% for x in missing %}a{% endfor %}", "none"),
        ("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for x in [1, 2] if x > 1 %}{{ x }}{% endfor %}{{ [1] + [2] }}{{ 'a' + 'b' }}{{ 7 - 2 }}", "2[1, 2]ab5"),
        ("{{ 'a' in 'abc' and 1 < 2 <= 2 and [1] == [1] and none is none }}{{ {'a' ~ 'b': 1} }}", "True{'ab': 1}"),
    ],
)
def test_what_is_cheap_works_as_in_jinja2(source: str, expected: str | None) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source).render()
    assert ChatTemplate(source, {}).render(MESSAGES) == plain
    assert expected in (None, plain)


def test_the_limits_themselves_are_allowed() -> None:
    assert len(ChatTemplate("{{ 'a' * n }}", {}).render([], n=MAX_TEXT)) == MAX_TEXT
    assert ChatTemplate("{{ ([0] * n) | length }}", {}).render([], n=MAX_ITEMS) == str(MAX_ITEMS)
    assert len(ChatTemplate("{{ 'a'.ljust(n) }}", {}).render([], n=MAX_WIDTH)) == MAX_WIDTH


def test_every_rendering_has_a_budget_of_its_own() -> None:
    half = "{% for i in range(12) %}{% for j in range(99999) %}{% endfor %}{% endfor %}ok"
    template = ChatTemplate(half, {})
    assert [template.render(MESSAGES) for _ in range(3)] == ["ok"] * 3


@pytest.mark.parametrize("name", ["qwen_meta", "llama_meta", "smol_meta"])
def test_a_long_conversation_costs_a_real_template_little(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2000 turns of 500 characters, beside tools: more than any context holds."""
    spent: list[Budget] = []

    class Watched(Budget):
        def __init__(self) -> None:
            super().__init__()
            spent.append(self)

    monkeypatch.setattr("minfer_models.chat.environment.Budget", Watched)
    meta: dict[str, Any] = request.getfixturevalue(name)
    turns = [{"role": role, "content": "word " * 100} for role in ("user", "assistant")] * 1000
    template = ChatTemplate.from_metadata(meta)
    assert len(spent) == 1  # all the conversations that are tried share one
    template.render(turns[:2])
    spent.clear()
    template.render(turns, tools=None if name == "smol_meta" else TOOLS * 20)
    (budget,) = spent
    assert 0 < MAX_WORK - budget.left < MAX_WORK // 5


def test_jinja2_has_no_filter_or_global_that_nobody_judged() -> None:
    """The limits are by name: a new name in jinja2 needs a look first."""
    from datetime import datetime

    environment = ChatEnvironment(datetime.now)
    assert sorted(environment.globals) == [
        *("cycler", "dict", "joiner", "namespace", "raise_exception", "range", "strftime_now")
    ]
    assert len(environment.filters) == 54
    assert CHATS
