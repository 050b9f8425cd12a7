"""What is asked of a quantization, checked before a file is opened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf.quantize.mixes import FileType, file_type


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """Which tensors get which type.

    file_type: the type of the whole, a format or a mix of formats (`mixes.FILE_TYPES`).
    pure: every matrix gets the mix's first format, the head too.
    keep_output: the head's matrix stays as it is.
    output_type, token_embedding_type: formats of the head and of token_embd.weight. A token_embd.weight that is also
        the head follows token_embedding_type, else output_type.
    tensor_types: (regular expression, format) pairs; the first that is found in a matrix's name gives its format,
        unless one of the above does.
    allow_requantize: whether a matrix that is quantized already may be quantized again.
    """

    file_type: FileType
    pure: bool = False
    keep_output: bool = False
    output_type: str | None = None
    token_embedding_type: str | None = None
    tensor_types: tuple[tuple[re.Pattern[str], str], ...] = ()
    allow_requantize: bool = False

    @classmethod
    def parse(
        cls,
        type_name: str,
        *,
        pure: bool = False,
        keep_output: bool = False,
        output_type: str | None = None,
        token_embedding_type: str | None = None,
        tensor_types: tuple[str, ...] = (),
        allow_requantize: bool = False,
    ) -> QuantizeOptions:
        """From names as people write them, `tensor_types` as "REGEX=TYPE". Raises ValueError for what isn't known."""
        return cls(
            file_type(type_name),
            pure,
            keep_output,
            None if output_type is None else weight_format(output_type),
            None if token_embedding_type is None else weight_format(token_embedding_type),
            tuple(parse_tensor_type(text) for text in tensor_types),
            allow_requantize,
        )


def weight_format(name: str) -> str:
    """The name of the weight format `name`, in either case; raises ValueError with those there are."""
    upper = name.upper()
    if upper in WEIGHT_FORMATS:
        return upper
    near = get_close_matches(upper, WEIGHT_FORMATS, cutoff=0.5)
    raise ValueError(
        f"a tensor can't get the type {name!r}; {'nearest' if near else 'known'}: " + ", ".join(near or WEIGHT_FORMATS)
    )


def parse_tensor_type(text: str) -> tuple[re.Pattern[str], str]:
    """The two parts of "REGEX=TYPE"; raises ValueError when either isn't one."""
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern or not name:
        raise ValueError(f"{text!r} is not REGEX=TYPE, such as 'ffn_down=Q6_K'")
    try:
        return re.compile(pattern), weight_format(name)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
