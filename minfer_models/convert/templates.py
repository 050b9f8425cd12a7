"""Chat templates of a folder, as GGUF metadata."""

from __future__ import annotations

from typing import Any

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder
from minfer_models.convert.json_files import read_optional

KEY = "tokenizer.chat_template"
DEFAULT = "default"
MAX_BYTES = 1 << 20


def template_entries(folder: HFFolder) -> dict[str, Any]:
    """`tokenizer.chat_template`, and further ones under their names as gguf-py writes them.

    chat_template.jinja comes before chat_template.json, and that before tokenizer_config.json, as in transformers;
    additional_chat_templates/NAME.jinja adds named ones. Raises ConvertError for what is no template.
    """
    templates = _from_config(folder)
    file = folder.path / "chat_template.jinja"
    if file.exists():
        templates[DEFAULT] = _text(file)
    for extra in sorted((folder.path / "additional_chat_templates").glob("*.jinja")):
        templates[extra.stem] = _text(extra)
    entries: dict[str, Any] = {}
    if DEFAULT in templates:
        entries[KEY] = templates.pop(DEFAULT)
    if templates:
        entries[f"{KEY}s"] = sorted(templates)
        entries |= {f"{KEY}.{name}": template for name, template in sorted(templates.items())}
    return entries


def _from_config(folder: HFFolder) -> dict[str, str]:
    path = folder.path / "chat_template.json"
    value: Any = read_optional(path).get("chat_template")
    if value is None:
        path, value = folder.path / "tokenizer_config.json", folder.tokenizer_config.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    named = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) and {"name", "template"} <= item.keys() for item in named):
        raise ConvertError(f"is {value!r:.80}, no template and no list of named ones", path=path, key="chat_template")
    pairs = [(item["name"], item["template"]) for item in named]
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise ConvertError("has a name or a template that is no string", path=path, key="chat_template")
    return dict(pairs)


def _text(path: Any) -> str:
    if path.stat().st_size > MAX_BYTES:
        raise ConvertError(f"has more than {MAX_BYTES} bytes", path=path)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConvertError(f"is not UTF-8 at byte {error.start}", path=path) from None
