"""Coverage-guided fuzzing with atheris: `python -m tools.fuzzing.guided SEEDS SECONDS RANDOM_SEED`.

What leads to code that no file reached before is kept and changed further: by edits of fields where the bytes still
have the structure of a file, and by libFuzzer's own mutations. It stops at the first finding, whose file it keeps in
the folder for temporary files. atheris has wheels for Linux and CPython 3.11 to 3.13 only.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

EDITED_SHARE = 0.6
LONGEST = 1 << 17
CASE_SECONDS = 60
MEBIBYTES = 3000


def mutator(atheris: Any) -> Callable[[bytes, int, int], bytes]:
    """Changes a file's fields where it has any, else its bytes."""
    from tools.fuzzing.document import DocumentError, parse
    from tools.fuzzing.edits import info_edits, key_edits

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < EDITED_SHARE:
            try:
                document = parse(data)
            except (DocumentError, MemoryError):
                document = None
            if document is not None and document.keys and document.infos:
                place, tensor = random.randrange(len(document.keys)), random.randrange(len(document.infos))
                edits = key_edits(document, place) if random.random() < 0.75 else info_edits(document, tensor)
                changed = random.choice(list(edits)).make().encoded()
                if len(changed) <= longest:
                    return changed
        return atheris.Mutate(data, longest)

    return mutate


def main() -> None:
    """Fuzz until the time is up or something is found; atheris ends the process."""
    seeds, seconds, random_seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        raise SystemExit("fuzz: atheris is not installed; on Linux: pip install -e '.[fuzz]'") from None
    with atheris.instrument_imports(include=["minfer_models.gguf", "minfer_models.tokenizer", "minfer_models.chat",
                                             "minfer_models.arch", "minfer_models.engine.model"]):  # fmt: skip
        from tools.fuzzing.target import Depth, exercise
    depth = Depth(compared=True, weights=True, text=True, template=True)
    with tempfile.TemporaryDirectory(prefix="minfer-fuzz-") as folder:
        path = Path(folder) / "m.gguf"
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for seed in seeds.glob("*/m.gguf"):
            if seed.stat().st_size <= LONGEST:
                (corpus / seed.parent.name).write_bytes(seed.read_bytes())

        def one_input(data: bytes) -> None:
            path.write_bytes(data)
            exercise(path, depth)

        options = {
            "max_total_time": seconds, "seed": random_seed + 1, "max_len": LONGEST, "timeout": CASE_SECONDS,
            "rss_limit_mb": MEBIBYTES, "print_final_stats": 1,
            "artifact_prefix": Path(tempfile.gettempdir()) / "minfer-fuzz-",
        }  # fmt: skip
        arguments = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus)]
        atheris.Setup(arguments, one_input, custom_mutator=mutator(atheris))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
