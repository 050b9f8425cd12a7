"""`python -m tools.tokenizer_growth`: CPU time of encoding ever longer runs, for every real vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any

from minfer_models.gguf import open_gguf
from minfer_models.synthetic.vocabulary import hf_vocabulary
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.vocab import SCORES_KEY, TOKENS_KEY
from tools import testdata

LENGTHS = (1 << 14, 1 << 15, 1 << 16, 1 << 17)
UNITS = {
    "one letter": "a",
    "spaces": " ",
    "digits": "7",
    "line ends": "\n",
    "mixed": "The 12 llamas, naïve as ever; нещо 我想 🦙\n",
    "emoji": "🦙",
    "marks": "\u0301",
}


def vocabularies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and metadata; the last has nothing but equal scores."""
    yield "Qwen 3", hf_vocabulary(testdata.path("qwen3-tokenizer"), "qwen2")
    llama = hf_vocabulary(testdata.path("llama3_1-tokenizer"), "llama-bpe")
    yield "Llama 3.1", llama
    yield "tekken's cutting", {**llama, "tokenizer.ggml.pre": "tekken"}
    with open_gguf(testdata.path(testdata.DEMO)) as file:
        yield "SmolLM2", dict(file.metadata)
    mistral = hf_vocabulary(testdata.path("mistral-tokenizer"), "default")
    yield "Mistral 7B", mistral
    yield "Mistral 7B, all scores equal", {**mistral, SCORES_KEY: [0.0] * len(mistral[TOKENS_KEY])}


def main() -> None:
    """Print a table: milliseconds for each length, and the ratio of the last to the one a quarter as long."""
    print("| vocabulary | text |", *(f"{n >> 10} K |" for n in LENGTHS), "ratio of 128 K to 32 K |")
    print("| --- | --- |", *("---: |" for _ in LENGTHS), "---: |")
    for name, metadata in vocabularies():
        tokenizer = Tokenizer.from_metadata(metadata)
        for text, unit in UNITS.items():
            times = [_milliseconds(tokenizer, (unit * n)[:n]) for n in LENGTHS]
            print(f"| {name} | {text} |", *(f"{t:.0f} |" for t in times), f"{times[3] / times[1]:.1f} |", flush=True)


def _milliseconds(tokenizer: Tokenizer, text: str) -> float:
    start = process_time()
    tokenizer.encode(text)
    return (process_time() - start) * 1e3


if __name__ == "__main__":
    main()
