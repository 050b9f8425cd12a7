"""Chat templates that are odd or hostile: each must render, be refused, or fail with our error, within its budget."""

from __future__ import annotations

_DEEP = 400

TEMPLATES = (
    # broken, or nearly
    "", " ", "{{", "{%", "{#", "{{ }}", "{% %}", "{% if %}", "{% for x in %}", "{% endfor %}", "{% macro %}",
    "{% for m in messages %}", "{{ messages[ }}", "{{ 'a' }", "{% raw %}", "{% block a %}{% block a %}",
    "{{ 1 +* 2 }}",
    "{% set x = %}", "{% unknown %}", "{{ x | nofilter }}", "{{ x is notest }}", "\0", "{{ '\0' }}", "{{ \x1b[31m }}",
    "{{ '\\x1b[31mred' }}", "\x1b]0;title\x07", "{{ '\\N{BULLET}' }}", "{{ '\\ud800' }}", "{{ '\\x' }}",
    "\u202e{{ 1 }}",
    "{{ 0x }}", "{{ 1__0 }}", "{{ 1e999 }}", "{{ 9" + "9" * 5000 + " }}", "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}", "{% from 'x' import y %}", "{{ self.a() }}", "{{ loop }}", "{{ super() }}", "{% break %}",
    # names and values that aren't there or of another kind
    "{{ nothing.at.all }}", "{{ messages.x.y }}", "{{ messages['role'] }}", "{{ messages[99].content }}",
    "{{ messages[0].content[0].text }}", "{{ messages[-1]['tool_calls'][0] }}", "{{ messages() }}",
    "{{ bos_token() }}",
    "{{ messages + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' * 'b' }}", "{{ -'a' }}", "{{ none.x }}",
    "{{ {}[[]] }}",
    "{{ raise_exception('no \x1b[31m\n thanks') }}", "{{ raise_exception() }}", "{{ strftime_now('%Q' * 99) }}",
    "{{ strftime_now(1) }}", "{{ strftime_now('\ud7ff%Y') }}", "{{ messages | tojson(indent=99999999) }}",
    "{{ namespace() | tojson }}", "{{ cycler() }}", "{{ joiner(1)()() }}", "{{ lipsum(n=1000000) }}",
    "{{ range(10**10) }}",
    # out of the sandbox
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.__init__.__globals__ }}", "{{ cycler.__init__ }}",
    "{{ ''['__class__'] }}", "{{ ''|attr('__class__') }}", "{{ '{0.__class__}'.format('') }}", "{{ self.__dict__ }}",
    "{{ '{0.__class__.__mro__}'.format_map({'0': 1}) }}", "{{ namespace(__class__=1) }}", "{{ messages.append(1) }}",
    "{{ raise_exception.__globals__ }}", "{{ range.mro() }}", "{% set x = messages.clear() %}",
    # without end, or without bound
    "{% for i in range(10**9) %}x{% endfor %}", "{{ 'a' * 10**12 }}", "{{ 10 ** 10 ** 10 }}", "{{ [0] * 10**12 }}",
    "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{{ '%99999999999d' % 1 }}", "{{ '%.999999999f' % 1.5 }}", "{{ '{:99999999999}'.format(1) }}",
    "{{ 'a'.center(10**11) }}",
    "{{ 'a'.replace('', 'b' * 10**6).replace('', 'c' * 10**6) }}", "{{ 'a'.join(['b'] * 10**9) }}",
    "{{ ('a' * 10**6).split('') }}",
    "{{ ('a,' * 10**7).split(',') | length }}", "{{ 'a' | indent(10**10) }}", "{{ 'a' | center(10**10) }}",
    "{{ ('a' * 20000) | wordwrap(1) | length }}", "{{ range(10**6) | list | sort | unique | list | length }}",
    "{{ range(999999) | map('string') | join(',') | length }}", "{{ messages | batch(10**9, 'x') | list }}",
    "{{ messages | slice(10**9) | list }}", "{{ 'a' | tojson(indent=10**9) }}",
    "{{ 'x'.zfill(10**10) }}", "{{ '\\t'.expandtabs(10**10) }}", "{{ (10 ** 4000) | string }}",
    "{{ 2 ** 4096 * 2 ** 4096 }}",
    # as deep as the parser goes, and deeper
    "{{ " + "(" * _DEEP + "1" + ")" * _DEEP + " }}", "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "{{ " + "not " * 3000 + "1 }}",
    "{% if 1 %}" * _DEEP + "{% endif %}" * _DEEP, "{% for m in messages %}" * 30 + "x" + "{% endfor %}" * 30,
    "{{ x" + ".y" * 3000 + " }}", "{{ x" + "|string" * 3000 + " }}", "{{ 1" + "+1" * 5000 + " }}",
    "{{ 'a'" + "~'a'" * 5000 + " }}",
    "{% set x = 1 %}" * 3000, "{{ 1 if 1 else " * 300 + "1" + " }}" * 300, "{{ '" + "a" * 300000 + "' }}",
    "a\n" * 100000,
    # plausible
    "{{ messages[0].content }}", "{{ messages | tojson(indent=2) }}",
    "{%- for m in messages -%}{{ m | items | list }}{%- endfor -%}",
    "{% for m in messages %}{{ bos_token }}{{ m.role ~ m.content }}{{ eos_token }}{% endfor %}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    "{{ tools }}{{ documents }}{{ add_generation_prompt }}",
)  # fmt: skip

LONG_TEMPLATES = (
    "{% set ns = namespace(x=[1]) %}"
    "{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}"
    "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "{% set ns = namespace(x=[1]) %}"
    "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}",
    "{{ range(10**5) | groupby('x') | list }}", "{% set x = 1 %}" * 15000, "{{ x" + "|string" * 20000 + " }}",
    "{% if 1 %}a" + "{% elif 1 %}b" * 15000 + "{% endif %}", "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
)  # fmt: skip
"""Those that take seconds to come to their limit."""
