"""What is asked of every file: our error, in one printable line of bounded length, or a good load.

A file goes as far as it gets: opened strictly and for listing, its metadata read, the model checked, tokenizer and
template made and used, the weights looked over; and for some, looked at as `minfer inspect` does, quantized into
another file, or loaded and run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minfer_ir.memory.budget import BudgetError
from minfer_models.chat import ChatTemplate, ChatTemplateError
from minfer_models.engine import EngineOptions, Model
from minfer_models.engine.options import EngineError
from minfer_models.gguf import GGUFError, GGUFFile, check_finite, open_gguf
from minfer_models.gguf.quantize.options import QuantizeOptions
from minfer_models.gguf.quantize.quantize import write_quantized
from minfer_models.inspect import summarize
from minfer_models.loading import load
from minfer_models.sampling import SamplingError
from minfer_models.settings import Settings
from minfer_models.tokenizer import Tokenizer, TokenizerError
from tools.fuzzing.document import Document, parse

OURS = (GGUFError, TokenizerError, ChatTemplateError, EngineError, BudgetError, SamplingError)
LONGEST_MESSAGE = 2000
TEXT = "hello, the 12 thing\n\n\t<|im_start|>é€😀"
MESSAGES = ({"role": "user", "content": "hello <|im_end|> \u2028"},)
FEW_ROWS = EngineOptions(threads=1, chunk=1)


class FindingError(AssertionError):
    """A file that was taken, or refused, in a way that it must not be."""


@dataclass(frozen=True, slots=True)
class Depth:
    """What is done with a file beside opening and checking it; all of it costs too much for every one."""

    compared: bool = False
    weights: bool = False
    written: bool = False
    text: bool = False
    template: bool = False
    summary: bool = False
    forward: bool = False


def exercise(path: Path, depth: Depth) -> str:
    """How far `path` got: "refused", "unreadable" (our reader takes it, no model is in it), "no text", "good", "ran".

    Raises FindingError for a bad error or a file that doesn't hold what we read; any other exception is a finding too.
    """
    opened: list[GGUFFile] = []
    strict = refused(lambda: opened.append(open_gguf(path)))
    for file in opened:
        with file:
            _check_file(file, depth)
            outcome = _used(file, depth)
            if depth.written:
                _write(file)
        if outcome == "good" and depth.forward and not refused(lambda: _run(path)):
            outcome = "ran"
        if not depth.compared:
            return outcome
        _check_listing(path, depth, strict)
        return outcome
    _check_listing(path, depth, strict)
    return "refused"


def _used(file: GGUFFile, depth: Depth) -> str:
    if depth.weights:
        refused(lambda: check_finite(file))
    if refused(lambda: Model.of(file)):
        return "unreadable"
    made: list[Tokenizer] = []
    lacks_text = refused(lambda: made.append(Tokenizer.from_metadata(file.metadata)))
    for tokenizer in made if depth.text else ():
        _use_tokenizer(tokenizer)
    if depth.template:
        refused(lambda: _use_template(file, made))
    return "no text" if lacks_text else "good"


def refused(action: Callable[[], object]) -> str | None:
    """The message with which `action` is refused, checked, or None."""
    try:
        action()
    except OURS as error:
        return check_error(error)
    return None


def check_error(error: Exception) -> str:
    """The message of an error; raises FindingError for one that nobody can be shown."""
    message = str(error)
    if not message or len(message) > LONGEST_MESSAGE:
        raise FindingError(f"{type(error).__name__} with a message of {len(message)} characters: {message[:200]!r}")
    if not message.isprintable():
        raise FindingError(f"{type(error).__name__} with a message that isn't printable: {message!r}")
    return message


def _check_listing(path: Path, depth: Depth, strict: str | None) -> None:
    """Opened for listing, the same file is refused for no other reason."""
    opened: list[GGUFFile] = []
    listing = refused(lambda: opened.append(open_gguf(path, allow_incomplete=True)))
    if strict is None and listing is not None:
        raise FindingError(f"strict takes it, the listing refuses it: {listing}")
    for file in opened:
        with file:
            if (strict is None) != file.complete:
                raise FindingError(f"strict says {strict!r}, the listing {[str(p) for p in file.problems][:3]}")
            for problem in file.problems:
                check_error(problem)
            _check_file(file, depth)
            if depth.summary:
                refused(lambda file=file: summarize(file, FEW_ROWS, Settings.from_env()))


def _check_file(file: GGUFFile, depth: Depth) -> None:
    for name, info in file.tensors.items():
        if file.complete and file.rows(name).nbytes != info.nbytes:
            raise FindingError(f"{name!r}: {file.rows(name).nbytes} bytes, not {info.nbytes}")
    if depth.compared:
        _check_agrees(file)
        if any(len(repr(value)) > 1 << 20 for value in file.metadata.values() if not isinstance(value, str)):
            raise FindingError("a value that prints without bound")


def _check_agrees(file: GGUFFile) -> None:
    """What we read is what is there, by another parser."""
    documents = [parse(path.read_bytes()[: 1 << 24]) for path in file.paths]
    keys = [key.name.decode() for key in documents[0].keys]
    if list(file.metadata) != [key for key in keys if len(documents) == 1 or not key.startswith("split.")]:
        raise FindingError(f"keys are {list(file.metadata)}, not {keys}")
    expected = [tensor for document in documents for tensor in _tensors(document)]
    found = [(i.name, i.shape, i.type_id, i.offset) for i in file.tensors.values()]
    if found != expected:
        raise FindingError(f"tensors are {found}, not {expected}")


def _tensors(document: Document) -> list[tuple[str, tuple[int, ...], int, int]]:
    start = len(document.head())
    return [(i.name.decode(), i.ne[::-1], i.type, start + i.offset) for i in document.infos]


def _use_tokenizer(tokenizer: Tokenizer) -> None:
    ids: list[int] = []
    for special in (False, True):
        refused(lambda special=special: ids.extend(tokenizer.encode(TEXT, special=special, add_bos=None, add_eos=None)))
    if not all(0 <= i < tokenizer.n_vocab for i in ids):
        raise FindingError(f"ids {ids} of a vocabulary of {tokenizer.n_vocab}")
    tokenizer.decode(ids)
    stream = tokenizer.stream()
    if "".join(map(stream.push, ids)) + stream.flush() != tokenizer.decode(ids):
        raise FindingError("the stream isn't the whole")


def _use_template(file: GGUFFile, made: list[Tokenizer]) -> None:
    template = ChatTemplate.from_metadata(file.metadata)
    text = template.render(MESSAGES)
    text.encode("utf-8", "surrogatepass")
    for tokenizer in made:
        template.encode(tokenizer, MESSAGES)


def _write(file: GGUFFile) -> None:
    """Quantized, or refused with nothing left behind; what was written opens."""
    target = file.path.with_name("written.gguf")
    target.unlink(missing_ok=True)
    options = QuantizeOptions.parse("Q4_0", allow_requantize=True)
    if refused(lambda: write_quantized(file, target, options, threads=1)) is None:
        open_gguf(target).close()
    elif target.exists():
        raise FindingError("a file was left behind by a refusal")


def _run(path: Path) -> None:
    with load(path, threads=1, chunk=1, settings=Settings.from_env()) as llm:
        logits = llm.logits([0, 0])
        if logits.shape != (2, llm.engine.model.config.n_vocab):
            raise FindingError(f"logits of shape {logits.shape}")
        llm.generate([0], max_tokens=2).text()
