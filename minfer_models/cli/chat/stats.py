"""What `/stats` says."""

from __future__ import annotations

from minfer_models.cli.telling import tokens
from minfer_models.conversation import Conversation
from minfer_models.sampling import SamplingParams


def stats(conversation: Conversation) -> list[str]:
    """Lines about the conversation, its tokens and what runs it."""
    talk, engine, usages = conversation.talk, conversation.llm.engine, conversation.usages
    answers = sum(message["role"] == "assistant" for message in talk.messages)
    prompt, reused = sum(u.prompt_tokens for u in usages), sum(u.cached_tokens for u in usages)
    computed = sum(u.prefilled_tokens for u in usages)
    seconds = sum(u.prefill_seconds for u in usages)
    decoded = sum(max(u.completion_tokens - 1, 0) for u in usages)
    decode_seconds = sum(u.decode_seconds for u in usages)
    usual = SamplingParams(temperature=0.0)
    sampling = "".join(f", {name} {value}" for name, value in talk.sampling.items() if value != getattr(usual, name))
    return [
        f"messages: {len(talk.messages)}, of which {answers} answers" + ("" if talk.system is None else ", 1 system"),
        f"context: {tokens(conversation.held_tokens)} held of {engine.n_ctx}",
        f"prompts: {tokens(prompt)}: {reused} reused, {computed} prefilled" + _rate(computed, seconds),
        f"answers: {tokens(sum(u.completion_tokens for u in usages))} generated" + _rate(decoded, decode_seconds),
        f"sampling: seed {talk.seed}, the next answer's {talk.next_seed}{sampling or ', the most likely tokens'}",
        f"model: {engine.model.file.path.name}, device {engine.options.device_name}, kv {engine.options.kv_type}",
    ]


def _rate(count: int, seconds: float) -> str:
    return f" at {count / seconds:.1f} tok/s" if seconds else ""
