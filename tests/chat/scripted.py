"""A model of single bytes whose answers the test chooses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from minfer_models import LLM, load
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model
from minfer_models.synthetic.scripted import ScriptedBackend, answering

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}>"
TALKING = TEMPLATE[:-1] + "{% if add_generation_prompt %}[assistant]{% endif %}"
"""A template whose prompts grow by what is new."""
THINKING = TALKING.replace(
    "m.content", "(m.content if '<think>' not in m.content else m.content.split('</think>')[-1])"
)
"""One whose model thinks between markers, and which leaves earlier thinking out."""
N_CTX = 400


def write_scripted(path: Path, template: str = TEMPLATE, n_ctx: int = N_CTX) -> Path:
    vocabulary = {**byte_vocabulary(), "tokenizer.chat_template": template}
    sizes: dict[str, Any] = {"n_blocks": 1, "width": 32, "ffn_width": 32, "n_heads": 1, "n_kv_heads": 1}
    return write_model(path, SyntheticModel(weights="F32", vocabulary=vocabulary, n_ctx_train=n_ctx, **sizes))


def scripted(path: Path, answer: Callable[[bytes], bytes], marker: bytes = b">", **options: Any) -> LLM:
    """The model at `path`, saying what `answer` gives for a prompt, marker included; `backend_of` has its rows."""
    return load(path, backends=[ScriptedBackend(answering(answer, marker))], **options)


def backend_of(llm: LLM) -> ScriptedBackend:
    backend = llm.engine.resources.backends["cpu"]
    assert isinstance(backend, ScriptedBackend)
    return backend
