"""What a template from a file may not do: every attempt is one clear error, when it's loaded or when it's rendered."""

from __future__ import annotations

import pytest

from minfer_models.chat import ChatTemplate, ChatTemplateError

MESSAGES = [{"role": "user", "content": "xx"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ lipsum.__globals__['os'].popen('id').read() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'] }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages[0].content.__class__ }}",
        "{% set ns = namespace() %}{% set x = ns.__class__ %}",
        "{% include 'secret' %}",
        "{% import 'secret' as s %}",
        "{% from 'secret' import s %}",
        "{% extends 'secret' %}",
        "{{ undefined_function() }}",
        "{{ open('/etc/passwd').read() }}",
        "{{ get_flashed_messages() }}",
        "{{ config.items() }}{{ url_for.__globals__ }}",
        "{% if false %}{{ x | no_such_filter }}{% endif %}",
        "{% if false %}{{ x is no_such_test }}{% endif %}",
        "{% for x in y | no_such_filter %}{% endfor %}",
        "{% do messages.append(1) %}",
        "{% debug %}",
    ],
)
def test_what_can_never_render_is_refused_when_it_loads(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="does not parse at its line 3: "):
        ChatTemplate("\n\n" + source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ messages[0].content._marks }}",
        "{{ messages | attr('__class__') }}",
        "{{ '' | attr('__cl' ~ 'ass__') }}",
        "{{ ''['__cl' ~ 'ass__'] }}",
        "{{ messages[0]['content']['_' ~ '_class_' ~ '_'] }}",
        "{{ '{0.__class__}'.format(messages[0].content) }}",
        "{{ '{0[__class__]}'.format(messages) }}",
        "{{ '{x.__init__}'.format_map({'x': cycler}) }}",
        "{{ (messages[0].content ~ '{0.__class__.__mro__}').format(1) }}",
        "{{ ['{0.__class__}'] | map('format', 1) | list }}{{ '{0.__class__}'.format(1) }}",
        "{{ [messages] | map(attribute='__class__') | list }}",
        "{{ [cycler] | map(attribute='__init__.__globals__') | list }}",
        "{{ [messages] | sort(attribute='__class__') }}",
        "{{ [messages] | groupby('__class__') }}",
        "{{ [messages] | selectattr('__class__') | list }}",
        "{{ ['x'] | map('attr', '__class__') | list }}",
        "{{ namespace(__init__=1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ self._TemplateReference__context }}",
        "{{ (raise_exception | attr('func_globals')) + '' }}",
        "{{ (strftime_now | attr('__code__')) + '' }}",
        "{% macro m() %}{% endmacro %}{{ m._func }}",
        "{% macro m() %}{% endmacro %}{{ m | attr('_environment') }}",
        "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
        "{{ (messages | map('upper')).gi_frame }}",
        "{{ (messages | select).gi_code }}",
        "{{ dict.mro() }}",
        "{{ 'x' * 100000000 }}",
        "{{ 100000000 * messages[0].content }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% for i in range(1000000) %}{% endfor %}",
        "{{ messages[0].content.foo.bar }}",
        "{{ messages[7].content }}",
        "{{ 1 + messages[0].content }}",
        "{{ strftime_now(1) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_may_not_do_is_one_clear_error(source: str) -> None:
    template = ChatTemplate("\n\n" + source, {})
    with pytest.raises(ChatTemplateError, match=r"the chat template failed at its line \d+: \w+Error") as caught:
        print(template.render(MESSAGES))
    assert "line 3" in str(caught.value)
    assert "__" not in repr(caught.value.refusal)


def test_a_template_cannot_change_what_the_caller_holds() -> None:
    messages = [{"role": "user", "content": "a", "list": [1, {"b": 2}]}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    source = (
        "{% for m in messages %}{% set _ = m.list.append(3) %}{% endfor %}",
        "{% set _ = tools[0].function.update({'name': 'g'}) %}",
        "{% set _ = tools.clear() %}",
    )
    for attempt in source:
        with pytest.raises(ChatTemplateError, match="SecurityError"):
            ChatTemplate(attempt, {}).render(messages, tools=tools)
    assert messages == [{"role": "user", "content": "a", "list": [1, {"b": 2}]}]
    assert tools == [{"type": "function", "function": {"name": "f"}}]
