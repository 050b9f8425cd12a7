"""Small chat templates that write calls of tools as real ones do, and calls as their models write them."""

from __future__ import annotations

from minfer_models.chat import ToolCall

TURN = "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}"
SOME_ID = "{{ raise_exception('nine characters') if ID is not defined or ID | length != 9 }}"
ARRAY = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    + TURN
    + SOME_ID.replace("ID", "m.tool_call_id")
    + '[TOOL_RESULTS]{"content": {{ m.content | tojson }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% elif m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}{{ (c.function | tojson)[:-1] }}"
    + SOME_ID.replace("ID", "c.id")
    + ', "id": "{{ c.id }}"}{{ "" if loop.last else ", " }}{% endfor %}]</s>'
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
"""Mistral's up to Nemo: one array, and it insists on ids."""
NAMED = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    + TURN
    + "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
    "{% else %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}"
    "[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% endif %}{% endfor %}"
)
"""Mistral's later ones: a name and arguments behind a marker each."""
FENCED = (
    "{% set ns = namespace(tool=false) %}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}{% elif m.role == 'tool' %}"
    "{{ '<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + m.content }}"
    "{{ '<｜tool▁output▁end｜><｜tool▁outputs▁end｜>' }}"
    "{% set ns.tool = true %}{% else %}{{ '' if ns.tool else '<｜Assistant｜>' }}{% set ns.tool = false %}"
    "{{ m.content.split('</think>')[-1] if m.content else '' }}{% if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}"
    "{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name"
    " + '\\n```json\\n' + c.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{{ '' if loop.last else '\\n' }}"
    "{% endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}{{ '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and not ns.tool %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"
)
"""DeepSeek R1's: takes no tools, and arguments as text only."""
SEPARATED = (
    FENCED.replace(
        "c.type + '<｜tool▁sep｜>' + c.function.name + '\\n```json\\n'", "c.function.name + '<｜tool▁sep｜>'"
    )
    .replace("'\\n```<｜tool▁call▁end｜>'", "'<｜tool▁call▁end｜>'")
    .replace("'' if loop.last else '\\n'", "''")
    .replace("<think>\\n", "</think>")
)
"""DeepSeek V3.1's."""
OBJECTS = (
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
    "{% if tools and loop.first %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% if m.tool_calls %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{% set f = m.tool_calls[0].function %}"
    "{{ '{\"name\": \"' + f.name + '\", \"parameters\": ' }}{{ f.arguments | tojson }}{{ '}' }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
"""Llama 3.1's."""
TAGGED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ tools | tojson if tools and loop.first else '' }}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    '{{ "\n" if m.content or not loop.first }}<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Hermes'."""

F, G = ToolCall("f", {"a": "} ] </tool_call>"}), ToolCall("get.it-2", {"ä": [1, None], "b": {}})
F_JSON, G_JSON = '{"a": "} ] </tool_call>"}', '{"ä": [1, null], "b": {}}'

WRITTEN = {
    "tags": (
        TAGGED,
        f'<tool_call>\n{{"name": "f", "arguments": {F_JSON}}}\n</tool_call>\n'
        f'<tool_call>\n{{"name": "get.it-2", "arguments": {G_JSON}}}\n</tool_call>',
    ),
    "array": (
        ARRAY,
        f'[TOOL_CALLS][{{"name": "f", "arguments": {F_JSON}}}, {{"name": "get.it-2", "arguments": {G_JSON}}}]',
    ),
    "named": (NAMED, f"[TOOL_CALLS]f[ARGS]{F_JSON}[TOOL_CALLS]get.it-2[ARGS]{G_JSON}"),
    "fenced": (
        FENCED,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{F_JSON}\n```<｜tool▁call▁end｜>\n"
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get.it-2\n```json\n{G_JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "separated": (
        SEPARATED,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{F_JSON}<｜tool▁call▁end｜>"
        f"<｜tool▁call▁begin｜>get.it-2<｜tool▁sep｜>{G_JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "objects": (OBJECTS, f'{{"name": "f", "parameters": {F_JSON}}}; {{"name": "get.it-2", "parameters": {G_JSON}}}'),
}  # fmt: skip
"""By notation: a template, and how its model writes F and G."""
CALLS = {
    "tags": "tags", "array": "mistral", "named": "mistral", "fenced": "deepseek", "separated": "deepseek",
    "objects": "json",
}  # fmt: skip
