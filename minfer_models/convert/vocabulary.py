"""A folder's tokenizer and chat template as GGUF metadata (`tokenizer.*`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder
from minfer_models.convert.pretokenizer import name_of, short_probe
from minfer_models.convert.special_tokens import added_ends, end_ids, role_ids
from minfer_models.convert.templates import template_entries
from minfer_models.convert.tokenizer_file import TokenizerFile, read_tokenizer
from minfer_models.tokenizer import Tokenizer, TokenizerError, metadata_from_hf
from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS

Notice = Callable[[str], None]
SCORED = "default"
"""`tokenizer.ggml.pre` of SentencePiece vocabularies, which don't cut text."""


def vocabulary_entries(folder: HFFolder, n_vocab: int, pre: str | None, notice: Notice) -> dict[str, Any]:
    """All of `tokenizer.*` for a model with `n_vocab` logits.

    `pre` overrules which pre-tokenizer it is. The tokenizer that minfer makes of the metadata is held against
    tokenizer.json on a text of awkward pieces: where they differ, `notice` hears of it if `pre` was given. Raises
    ConvertError if it wasn't, and for what doesn't convert.
    """
    file = read_tokenizer(folder, n_vocab)
    try:
        roles = role_ids(folder, file.ids, n_vocab)
        entries: dict[str, Any] = {
            **metadata_from_hf(file.spec, {}, pre or _detected(file), n_vocab),
            **{f"tokenizer.ggml.{role}_token_id": i for role, i in roles.items()},
            **{f"tokenizer.ggml.add_{end}_token": added for end, added in added_ends(folder, file.runs, roles).items()},
        }
        made = Tokenizer.from_metadata(entries)
    except TokenizerError as error:
        raise ConvertError(str(error), path=file.path) from None
    _compare(file, made, pre, notice)
    return entries | _unnamed_ends(folder, made, n_vocab, notice) | template_entries(folder)


def _detected(file: TokenizerFile) -> str:
    if file.model.get("byte_fallback"):
        return SCORED
    name = name_of(file.runs, file.spec.get("normalizer"), bool(file.model.get("ignore_merges")))
    if name is None:
        known = ", ".join(PRE_TOKENIZERS)
        message = f"cuts text in a way that has no name; --pre NAME says which one to write: {known}"
        raise ConvertError(message, path=file.path, key="pre_tokenizer")
    return name


def _compare(file: TokenizerFile, made: Tokenizer, pre: str | None, notice: Notice) -> None:
    def agree(text: str) -> bool:
        return made.encode(text) == file.runs.encode(text, add_special_tokens=False).ids

    if not agree("a" + short_probe()):
        message = f"minfer's tokenizer ({made.pre or SCORED}) makes other ids of a text than this file does"
        if pre is None:
            raise ConvertError(message, path=file.path)
        notice(f"{file.path}: {message}; --pre {pre} is written as asked")
    elif not agree(" a"):
        # Metaspace of the tokenizers library, which recent files have, puts no second space there; SentencePiece does.
        notice(f"{file.path}: a text that begins with a space will get SentencePiece's own ids, not quite this file's")


def _unnamed_ends(folder: HFFolder, made: Tokenizer, n_vocab: int, notice: Notice) -> dict[str, int]:
    """Ends of generation_config.json that no text or role gives away: GGUF has two more roles for them."""
    unnamed = [i for i in dict.fromkeys(end_ids(folder, n_vocab)) if i not in made.eog]
    roles = ("eos", "eot", "eom") if made.eos is None else ("eot", "eom")
    for i in unnamed[len(roles) :]:
        notice(f"token {i} ends a text by generation_config.json, and GGUF has no role left for it")
    return {f"tokenizer.ggml.{role}_token_id": i for role, i in zip(roles, unnamed, strict=False)}
