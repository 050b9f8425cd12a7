"""`minfer convert`: a Hugging Face folder as a GGUF file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minfer_models.cli.options import Threads
from minfer_models.cli.writing import Force, bytes_shown, say_written


class WeightType(StrEnum):
    """What matrices become."""

    AUTO = "auto"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"


def convert(
    folder: Annotated[
        Path, typer.Argument(metavar="HF_DIR", help="A folder with config.json, *.safetensors, tokenizer.json.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The GGUF file to write.")],
    type_: Annotated[
        WeightType, typer.Option("--type", help="Type of the matrices; auto keeps each one's own. Vectors are f32.")
    ] = WeightType.AUTO,
    pre: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The pre-tokenizer's name, where it isn't recognized by what it does."),
    ] = None,
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Convert a Hugging Face model to GGUF.

    Architectures llama (Mistral too), qwen2 and qwen3, weights in safetensors. The file appears whole or not at all.
    """
    from minfer_models.cli.loading import compiling_shown, warn_of_threads
    from minfer_models.cli.progress import progress
    from minfer_models.convert import plan_conversion
    from minfer_models.gguf import check_destination
    from minfer_models.gguf.encoders import quickest_encode
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    threads = threads or settings.threads
    warn_of_threads(threads)
    check_destination(target, overwrite=force)
    with progress() as shown:
        shown.show(f"reading the tokenizer of {folder.name}")
        plan = plan_conversion(folder, type_.value, pre=pre, notice=shown.say)
        if plan.fallbacks:
            (name, fmt), more = next(iter(plan.fallbacks.items())), len(plan.fallbacks) - 1
            also = f" and {more} more" if more else ""
            shown.say(f"{name}{also}: {fmt.name}, for rows that aren't whole blocks of {type_.value}")
        hear = bytes_shown(shown, f"converting {folder.name}", plan.nbytes)
        encode = quickest_encode(plan.work, settings, compiling_shown(shown))
        plan.write(target, threads=threads, overwrite=force, hear=hear, encode=encode)
    say_written([target])
