"""`minfer tokenize`: what a model reads of a text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.options import ModelName
from minfer_models.cli.prompt import check_prompt, read_prompt

if TYPE_CHECKING:
    from minfer_models.tokenizer import Tokenizer


def tokenize(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Option("-p", "--prompt", help="The text, taken literally: \\n is no newline. - reads stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the text from a UTF-8 file.")] = None,
    special: Annotated[
        bool, typer.Option("--special", help="Let texts of special tokens, <|im_end|> for one, become those tokens.")
    ] = False,
    bos: Annotated[
        bool | None, typer.Option("--bos/--no-bos", help="Begin with the BOS token; unset: as the model's file says.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the tokens of a text.

    An id, a piece and a kind on each line; a piece that isn't whole characters is given as <f0 9f>. No weight is read.
    """
    from minfer_models.cli.loading import located
    from minfer_models.cli.output import emit
    from minfer_models.gguf import open_gguf
    from minfer_models.settings import Settings
    from minfer_models.tokenizer import Tokenizer

    check_prompt(prompt, file)
    with open_gguf(located(model, Settings.from_env()), allow_incomplete=True) as opened:
        tokenizer = Tokenizer.from_metadata(opened.metadata)
    ids = tokenizer.encode(read_prompt(prompt, file), special=special, add_bos=bos)
    if as_json:
        tokens = [_as_json(tokenizer, i) for i in ids]
        escaped = not (sys.stdout.encoding or "").lower().startswith("utf")  # what can't be written must not be lost
        emit(json.dumps({"n_tokens": len(ids), "ids": ids, "tokens": tokens}, ensure_ascii=escaped) + "\n", None)
    else:
        emit("".join(f"{line}\n" for line in _lines(tokenizer, ids)), None)


def _lines(tokenizer: Tokenizer, ids: list[int]) -> Iterator[str]:
    pieces = [_piece(tokenizer.token_bytes(i)) for i in ids]
    width = max(map(len, pieces), default=0)
    for i, piece in zip(ids, pieces, strict=True):
        yield f"{i:>7}  {piece:<{width}}  {_kind(tokenizer, i)}"
    yield f"{len(ids)} token{'' if len(ids) == 1 else 's'}"


def _piece(data: bytes) -> str:
    try:
        return json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"<{data.hex(' ')}>"


def _as_json(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    """`text` is null where the bytes are no whole characters."""
    data = tokenizer.token_bytes(token_id)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"id": token_id, "text": text, "bytes": data.hex(), "kind": _kind(tokenizer, token_id)}


def _kind(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_type(token_id).name.lower().replace("_", "-")
