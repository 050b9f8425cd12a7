"""Which type each matrix gets when a model is quantized as a whole, by the rules of llama.cpp's `llama-quantize`.

Source: llama-quant.cpp (`tensor_allows_quantization`, `llama_tensor_get_type_impl`, `use_more_bits`,
`tensor_type_fallback`), for models without experts and without an importance matrix:

- The head (output.weight, or token_embd.weight where the head is tied to it) is Q6_K, except that it stays Q8_0 in a
  Q8_0 model, and is Q8_0 where its rows aren't whole blocks of the type. A token_embd.weight of its own gets the type.
- Q4_K_M and Q5_K_M give Q6_K to attn_v and ffn_down where `use_more_bits` says so: in the first and last eighth of the
  blocks and in every third between. Q4_K_S gives Q5_K to the first four attn_v and to the first eighth of ffn_down.
- Q3_K_M, Q3_K_L, Q2_K and IQ4_NL lift attn_v, ffn_down and attn_output as `_lifted` says. attn_v counts as four
  or more query heads to a key head ("wide" sharing) in Q2_K and IQ4_NL, and is Q5_K at least in models of 70B.
- Everything else gets the type. F32, F16 and BF16 go to every matrix alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.formats import format_named


@dataclass(frozen=True, slots=True)
class FileType:
    """A type that a whole file may have: most matrices get `base`; `number` is its `general.file_type`."""

    name: str
    base: str
    number: int


FILE_TYPES = {
    t.name: t
    for t in (
        FileType("F32", "F32", 0),
        FileType("F16", "F16", 1),
        FileType("BF16", "BF16", 32),
        FileType("Q8_0", "Q8_0", 7),
        FileType("Q6_K", "Q6_K", 18),
        FileType("Q5_K_M", "Q5_K", 17),
        FileType("Q5_K_S", "Q5_K", 16),
        FileType("Q5_1", "Q5_1", 9),
        FileType("Q5_0", "Q5_0", 8),
        FileType("Q4_K_M", "Q4_K", 15),
        FileType("Q4_K_S", "Q4_K", 14),
        FileType("IQ4_NL", "IQ4_NL", 25),
        FileType("Q4_1", "Q4_1", 3),
        FileType("Q4_0", "Q4_0", 2),
        FileType("Q3_K_L", "Q3_K", 13),
        FileType("Q3_K_M", "Q3_K", 12),
        FileType("Q3_K_S", "Q3_K", 11),
        FileType("Q2_K", "Q2_K", 10),
    )
}
"""By name, from large to small (numbers: llama.h, `llama_ftype`)."""

ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""Names that llama-quantize takes for a mix."""

FALLBACK = {
    "Q2_K": "IQ4_NL",
    "Q3_K": "IQ4_NL",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
"""What takes the place of a super-block type where rows aren't whole blocks of 256. llama.cpp of 2026 has Q4_0 for
Q2_K and Q3_K, of the same size and with a larger error; it was IQ4_NL before, as here."""
LAST_RESORT = "F16"
"""For rows that aren't whole blocks of 32 either."""

LIFTING = frozenset({"Q5_K_M", "Q4_K_M", "Q4_K_S", "IQ4_NL", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"})
"""File types under which a matrix's type depends on the model and the block."""
FLOATS = frozenset({"F32", "F16", "BF16"})
WIDE_SHARING = 4


@dataclass(frozen=True, slots=True)
class Model:
    """What the rules ask of a model.

    sharing: query heads to a key head. large: whether llama.cpp calls it 70B. tied: whether it has no output.weight.
    """

    n_blocks: int
    sharing: int = 1
    large: bool = False
    tied: bool = True


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix: its kind ("ffn_down", "token_embd"), elements of a row, and which of its kind it is, from 0, of how
    many. For all but attn_v that is the block's number, of all blocks."""

    kind: str
    row: int
    index: int = 0
    count: int = 1


def file_type(name: str) -> FileType:
    """The file type called `name`, in either case, or what it is an alias of; raises ValueError for another."""
    upper = name.upper()
    found = FILE_TYPES.get(ALIASES.get(upper, upper))
    if found is None:
        raise ValueError(f"a file can't be quantized to {name!r}; it can to {', '.join(FILE_TYPES)}")
    return found


def type_of_matrix(wanted: FileType, matrix: Matrix, model: Model) -> str:
    """The format that the rules give to `matrix`, before rows that don't fit are looked at."""
    if wanted.base in FLOATS:
        return wanted.base
    if is_head(matrix.kind, model):
        if matrix.row % format_named(wanted.base).block_size:
            return "Q8_0"
        return "Q8_0" if wanted.base == "Q8_0" else "Q6_K"
    lifted = _lifted(wanted.name, matrix, model) or wanted.base
    if model.large and lifted in ("Q3_K", "Q4_K") and is_values(matrix.kind):
        return "Q5_K"
    return lifted


def is_head(kind: str, model: Model) -> bool:
    """Whether matrices of `kind` make the logits."""
    return kind == "output" or (model.tied and kind == "token_embd")


def is_values(kind: str) -> bool:
    """Whether matrices of `kind` make the values of attention, alone or beside others."""
    return kind in ("attn_v", "attn_qkv", "attn_kv_b")


def use_more_bits(index: int, count: int) -> bool:
    """Whether a lifted kind gets the better type in block `index`: the first and last eighth, every third between."""
    eighth = count // 8
    return index < eighth or index >= 7 * count // 8 or (index - eighth) % 3 == 2


def fitting(name: str, row: int) -> str:
    """The format `name`, or what takes its place where rows of `row` elements aren't whole blocks of it."""
    for candidate in (name, FALLBACK.get(name, name)):
        if row % format_named(candidate).block_size == 0:
            return candidate
    return LAST_RESORT


def _lifted(name: str, matrix: Matrix, model: Model) -> str | None:
    """The better type that the mix `name` gives to `matrix`, if any."""
    i, n = matrix.index, matrix.count
    if is_values(matrix.kind):
        wide = model.sharing >= WIDE_SHARING
        return {
            "Q2_K": "Q4_K" if wide else "Q3_K",
            "Q3_K_M": "Q5_K" if i < 2 else "Q4_K",
            "Q3_K_L": "Q5_K",
            "IQ4_NL": "Q5_K" if wide else None,
            "Q4_K_S": "Q5_K" if i < 4 else None,
            "Q4_K_M": "Q6_K" if use_more_bits(i, n) else None,
            "Q5_K_M": "Q6_K" if use_more_bits(i, n) else None,
        }.get(name)
    if matrix.kind == "ffn_down":
        first = i < n // 8
        return {
            "Q2_K": "Q3_K",
            "Q3_K_M": "Q5_K" if i < n // 16 else "Q4_K",
            "Q3_K_L": "Q5_K",
            "IQ4_NL": "Q5_K" if first else None,
            "Q4_K_S": "Q5_K" if first else None,
            "Q4_K_M": "Q6_K" if use_more_bits(i, n) else None,
            "Q5_K_M": "Q6_K" if use_more_bits(i, n) else None,
        }.get(name)
    if matrix.kind == "attn_output":
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(name)
    return None
