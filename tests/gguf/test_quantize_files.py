"""Files quantized whole: bytes of gguf-py and ggml, nothing half there, the same bytes from any number of threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from hostile_files import all_hostile
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS, Format
from minfer_models import load
from minfer_models.gguf import (
    GGUFError,
    GGUFFile,
    SplitRule,
    array_source,
    open_gguf,
    quantize_gguf,
    split_gguf,
    type_of,
    write_gguf,
)
from minfer_models.gguf.constants import GGMLQuantizationType
from minfer_models.gguf.encoders import numpy_encode
from minfer_models.gguf.quantize import FILE_TYPES
from minfer_models.synthetic import SyntheticModel, write_model

Floats = NDArray[np.float32]
GGUF_PY_ENCODES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


@pytest.fixture(autouse=True, scope="module")
def unflushed() -> Iterator[None]:
    """Waiting for the disk took most of the time, and none of these tests asks what a power cut leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minfer_models.gguf.writer.os.fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of F32."""
    path = tmp_path_factory.mktemp("source") / "model-F32.gguf"
    return write_model(path, SyntheticModel(n_blocks=2, ffn_width=256, weights="F32"))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of many pieces, the last one short."""
    monkeypatch.setattr("minfer_models.gguf.quantize.stream.PIECE_ELEMENTS", 5000)


@pytest.fixture
def larger_pieces(small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of two pieces and a bit."""
    monkeypatch.setattr("minfer_models.gguf.quantize.stream.PIECE_ELEMENTS", 30000)


def floats(folder: Path, kind: str, n: int = 256, rows: int = 37, **metadata: Any) -> tuple[Path, Floats]:
    """A file with one matrix of whole numbers and halves, which are the same in F32, F16 and BF16."""
    x = (np.random.default_rng(3).integers(-250, 250, (rows, n)) / 2).astype(np.float32)
    fmt = WEIGHT_FORMATS[kind]
    source = array_source("blk.0.ffn_up.weight", fmt.encode(x), type_of(fmt))
    return write_gguf(folder / "in.gguf", {"general.architecture": "llama", **metadata}, [source])[0], x


def tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("source", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("name", GGUF_PY_ENCODES)
def test_bytes_are_those_of_gguf_py(name: str, source: str, tmp_path: Path) -> None:
    path, x = floats(tmp_path, source)
    done = quantize_gguf(path, tmp_path / "out.gguf", name, threads=2)
    tensor = tensors(done.path)["blk.0.ffn_up.weight"]
    kind = gguf.GGMLQuantizationType[name]
    assert tensor.tensor_type == kind
    np.testing.assert_array_equal(tensor.data.view(np.uint8), quantize(x, kind).view(np.uint8))


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_two_blocks_of_every_type_are_read_as_gguf_py_reads_them(name: str, tmp_path: Path) -> None:
    fmt = WEIGHT_FORMATS[name]
    n = 2 * fmt.block_size
    data = fmt.draw(np.random.default_rng(1), 5, n)
    source = array_source("blk.0.ffn_up.weight", data, type_of(fmt))
    path = write_gguf(tmp_path / "in.gguf", {"general.architecture": "llama"}, [source])[0]
    done = quantize_gguf(path, tmp_path / "out.gguf", "F32", allow_requantize=True)
    found = tensors(done.path)["blk.0.ffn_up.weight"].data
    np.testing.assert_array_equal(found, dequantize(data, gguf.GGMLQuantizationType[name]).reshape(5, n))


# Root mean square of the error over that of the weights, whose distribution is normal, in a model's blocks; measured
# with the mixes' types, rounded up.
ERRORS = {
    "F32": 0, "F16": 0.00021, "BF16": 0.00168, "Q8_0": 0.00539, "Q6_K": 0.0179, "Q5_K_M": 0.0345,
    "Q5_K_S": 0.0365, "Q5_1": 0.0382, "Q5_0": 0.0431, "Q4_K_M": 0.067, "Q4_K_S": 0.0713, "IQ4_NL": 0.0768,
    "Q4_1": 0.0789, "Q4_0": 0.0867, "Q3_K_L": 0.0669, "Q3_K_M": 0.0876, "Q3_K_S": 0.153, "Q2_K": 0.181,
}  # fmt: skip


@pytest.mark.usefixtures("larger_pieces")
@pytest.mark.parametrize("name", FILE_TYPES)
def test_a_model_in_every_type(name: str, model: Path, tmp_path: Path) -> None:
    one = quantize_gguf(model, tmp_path / "1.gguf", name, threads=1).path
    assert quantize_gguf(model, tmp_path / "5.gguf", name, threads=5).path.read_bytes() == one.read_bytes()
    error = power = 0.0
    with open_gguf(model) as old, open_gguf(one) as new:
        assert list(new.tensors) == list(old.tensors)
        assert new.metadata["general.file_type"] == FILE_TYPES[name].number
        for tensor, info in new.tensors.items():
            values = WEIGHT_FORMATS["F32"].decode(old.rows(tensor))
            assert info.format is not None
            assert np.array_equal(new.rows(tensor)[-3:], info.format.encode(values[-3:])), tensor
            if tensor.startswith("blk.") and "norm" not in tensor:
                found = dequantize(new.rows(tensor), gguf.GGMLQuantizationType[info.type_name])
                error += float(((found.reshape(values.shape) - values.astype(np.float64)) ** 2).sum())
                power += float((values.astype(np.float64) ** 2).sum())
    assert 0.9 * ERRORS[name] <= (error / power) ** 0.5 <= ERRORS[name]


def test_metadata_goes_along_and_says_the_new_type(tmp_path: Path) -> None:
    kept = {"general.name": "x", "tokens": ["a", "é"], "general.alignment": 64}
    path, _ = floats(tmp_path, "F32", **{"general.file_type": 0, **kept})
    with open_gguf(quantize_gguf(path, tmp_path / "out.gguf", "Q4_K_M", pure=True).path) as new:
        assert list(new.metadata) == [
            "general.architecture", "general.file_type", "general.name", "tokens", "general.alignment",
            "general.quantization_version",
        ]  # fmt: skip
        assert (new.metadata["general.file_type"], new.metadata["general.quantization_version"]) == (15, 2)
        assert list(new.metadata.strings("tokens")) == ["a", "é"]
        assert (new.metadata["general.name"], new.alignment) == ("x", 64)


def test_matrices_that_have_their_type_are_copied(tmp_path: Path) -> None:
    fmt = WEIGHT_FORMATS["Q4_K"]
    data = fmt.draw(np.random.default_rng(1), 64, 512)
    source = array_source("blk.0.ffn_up.weight", data, type_of(fmt))
    path = write_gguf(tmp_path / "in.gguf", {"general.architecture": "llama"}, [source])[0]
    done = quantize_gguf(path, tmp_path / "out.gguf", "Q4_K_M", pure=True)
    assert [choice.new for choice in done.choices] == [None]
    np.testing.assert_array_equal(tensors(done.path)["blk.0.ffn_up.weight"].data, data)


def test_a_quantized_source_is_quantized_again_only_when_that_is_allowed(tmp_path: Path) -> None:
    path, x = floats(tmp_path, "Q8_0")
    with pytest.raises(GGUFError, match=r"'blk.0.ffn_up.weight': is quantized already \(Q8_0\).*--allow-requantize"):
        quantize_gguf(path, tmp_path / "out.gguf", "Q4_0")
    assert names(tmp_path) == ["in.gguf"]
    done = quantize_gguf(path, tmp_path / "out.gguf", "Q4_0", allow_requantize=True)
    eight = dequantize(quantize(x, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
    expected = quantize(eight, gguf.GGMLQuantizationType.Q4_0)
    np.testing.assert_array_equal(tensors(done.path)["blk.0.ffn_up.weight"].data, expected)


def test_a_split_source_is_read_as_one(model: Path, tmp_path: Path) -> None:
    shards = split_gguf(model, tmp_path / "shard", SplitRule(max_tensors=9))
    assert len(shards) > 2
    parts = quantize_gguf(shards[0], tmp_path / "a.gguf", "Q4_0").path
    whole = quantize_gguf(model, tmp_path / "b.gguf", "Q4_0").path
    assert parts.read_bytes() == whole.read_bytes()
    with pytest.raises(GGUFError, match="open the first one"):
        quantize_gguf(shards[1], tmp_path / "c.gguf", "Q4_0")
    (tmp_path / "link.gguf").symlink_to(shards[2])
    with pytest.raises(GGUFError, match="is what is read"):
        quantize_gguf(shards[0], tmp_path / "link.gguf", "Q4_0", overwrite=True)


def test_a_value_that_f16_cannot_hold_is_named_and_bf16_holds_it(tmp_path: Path) -> None:
    x = np.ones((50, 256), np.float32)
    x[41, 7] = 1e5
    bf16 = WEIGHT_FORMATS["BF16"]
    source = array_source("blk.0.ffn_up.weight", bf16.encode(x), type_of(bf16))
    path = write_gguf(tmp_path / "in.gguf", {"general.architecture": "llama"}, [source])[0]
    with pytest.raises(
        GGUFError, match=r"'blk.0.ffn_up.weight': F16 cannot hold 99840.0 \(row 41, element 7\); --tens"
    ):
        quantize_gguf(path, tmp_path / "out.gguf", "F16")
    assert names(tmp_path) == ["in.gguf"]
    kept = quantize_gguf(path, tmp_path / "out.gguf", "F16", tensor_types=("^blk.0.ffn_up.weight$=BF16",)).path
    assert tensors(kept)["blk.0.ffn_up.weight"].data.tobytes() == bf16.encode(x).tobytes()
    wide = quantize_gguf(path, tmp_path / "out32.gguf", "F32").path
    assert tensors(wide)["blk.0.ffn_up.weight"].data[41, 7] == 99840


def test_a_block_type_refuses_what_its_scale_cannot_hold(tmp_path: Path) -> None:
    x = np.ones((50, 256), np.float32)
    x[45, 100] = 1e9
    path = write_gguf(
        tmp_path / "in.gguf", {"general.architecture": "llama"}, [array_source("blk.0.ffn_up.weight", x)]
    )[0]
    with pytest.raises(GGUFError, match=r"Q8_0 cannot hold 1e\+09 \(row 45, block 3\): its float16 scale overflows"):
        quantize_gguf(path, tmp_path / "out.gguf", "Q8_0")
    assert names(tmp_path) == ["in.gguf"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["Q4_0", "BF16", "F32"])
def test_nan_and_infinity_are_named_by_tensor_and_row_also_in_what_is_copied(
    bad: float, name: str, tmp_path: Path
) -> None:
    x = np.ones((50, 256), np.float32)
    x[33, 5] = bad
    path = write_gguf(
        tmp_path / "in.gguf", {"general.architecture": "llama"}, [array_source("blk.0.ffn_up.weight", x)]
    )[0]
    with pytest.raises(
        GGUFError, match=r"'blk.0.ffn_up.weight': a value of row 33, block 5 is NaN or infinite \(F32\)"
    ):
        quantize_gguf(path, tmp_path / "out.gguf", name)
    assert names(tmp_path) == ["in.gguf"]


def test_a_type_that_is_not_read_is_copied_or_refused(tmp_path: Path) -> None:
    data = np.zeros((2, 136), np.uint8)
    sources = [array_source(f"{name}.weight", data, GGMLQuantizationType.IQ4_XS) for name in ("a", "output")]
    path = write_gguf(tmp_path / "in.gguf", {"general.architecture": "llama"}, sources[1:])[0]
    done = quantize_gguf(path, tmp_path / "out.gguf", "F16", keep_output=True)
    assert tensors(done.path)["output.weight"].tensor_type.name == "IQ4_XS"
    path = write_gguf(tmp_path / "in.gguf", {"general.architecture": "llama"}, sources)[0]
    with pytest.raises(GGUFError, match=r"'a.weight': is stored as IQ4_XS, which minfer doesn't read"):
        quantize_gguf(path, tmp_path / "out2.gguf", "F16", keep_output=True)
    assert names(tmp_path) == ["in.gguf", "out.gguf"]


@pytest.mark.parametrize("link", ["same", "symlink", "hardlink"])
def test_the_source_is_never_written_over(link: str, tmp_path: Path) -> None:
    path, _ = floats(tmp_path, "F32")
    before = path.read_bytes()
    target = tmp_path / "other.gguf"
    if link == "same":
        target = tmp_path / "." / "in.gguf"
    elif link == "symlink":
        target.symlink_to(path)
    else:
        target.hardlink_to(path)
    with pytest.raises(GGUFError, match="is what is read; name another file to write"):
        quantize_gguf(path, target, "Q4_0", overwrite=True)
    assert path.read_bytes() == before


def test_an_existing_file_stays_unless_it_may_be_replaced_and_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = floats(tmp_path, "F32")
    out = tmp_path / "out.gguf"
    out.write_bytes(b"precious")
    with pytest.raises(GGUFError, match="exists already"):
        quantize_gguf(path, out, "Q4_0")
    fmt = WEIGHT_FORMATS["Q4_0"]
    encoded = fmt.encode_blocks  # type: ignore[attr-defined]
    calls = iter(range(100))

    def failing(values: Floats, blocks: Any) -> None:
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        encoded(values, blocks)

    with monkeypatch.context() as patch:
        patch.setattr(fmt, "encode_blocks", failing, raising=False)
        with pytest.raises(OSError, match="No space left"):
            quantize_gguf(path, out, "Q4_0", overwrite=True, threads=2)
    assert (out.read_bytes(), names(tmp_path)) == (b"precious", ["in.gguf", "out.gguf"])
    quantize_gguf(path, out, "Q4_0", overwrite=True)
    assert out.read_bytes()[:4] == b"GGUF"


def test_an_interrupt_leaves_no_file_and_no_thread(model: Path, tmp_path: Path) -> None:
    def hear(_name: str, _nbytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_gguf(model, tmp_path / "out.gguf", "Q2_K", threads=3, hear=hear)
    assert names(tmp_path) == []
    assert not [t.name for t in threading.enumerate() if t.name.startswith("quantize")]


CHILD = """
import sys, os, signal
from minfer_models.gguf import quantize_gguf
import minfer_models.gguf.quantize.stream as stream
stream.PIECE_ELEMENTS = 2000
def hear(name, nbytes):
    if name == "blk.1.ffn_down.weight":
        os.kill(os.getpid(), signal.SIGINT)
quantize_gguf(sys.argv[1], sys.argv[2], "Q4_K_M", threads=2, hear=hear)
"""


def test_ctrl_c_in_the_middle_leaves_no_file(model: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(model), str(tmp_path / "out.gguf")],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert names(tmp_path) == []


def test_few_pieces_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = floats(tmp_path, "F32", rows=400)  # 22 pieces of 19 rows
    begun: list[int] = []
    written: list[int] = []
    fmt = WEIGHT_FORMATS["Q4_0"]
    encode = fmt.encode

    def counted(values: Floats) -> Any:
        begun.append(1)
        assert len(begun) - len(written) <= 2 * 3 + 1
        return encode(values)

    monkeypatch.setattr(fmt, "encode", counted, raising=False)
    quantize_gguf(path, tmp_path / "out.gguf", "Q4_0", threads=3, hear=lambda _n, _b: written.append(1))
    assert len(begun) == len(written) == 22


def test_pages_of_the_source_are_let_go_by_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x = floats(tmp_path, "F32", rows=400)
    released: list[int] = []
    monkeypatch.setattr("minfer_models.gguf.quantize.stream.RELEASE_EVERY", x.nbytes // 8)
    monkeypatch.setattr(GGUFFile, "release_pages", lambda _file: released.append(1))
    quantize_gguf(path, tmp_path / "out.gguf", "Q4_0", threads=2)
    assert 6 <= len(released) <= 8


def test_kernels_write_the_bytes_that_numpy_writes(
    model: Path, tmp_path: Path, larger_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is more than so much of a format; nothing of it goes through numpy then."""
    quantize_gguf(model, tmp_path / "numpy.gguf", "Q4_K_M", encode=numpy_encode)
    asked: list[str] = []

    def noted(fmt: Format, values: Floats) -> Any:
        asked.append(fmt.name)
        return type(fmt).encode(fmt, values)

    for name in ("Q4_K", "Q6_K", "Q5_0"):
        monkeypatch.setattr(WEIGHT_FORMATS[name], "encode", partial(noted, WEIGHT_FORMATS[name]), raising=False)
    quantize_gguf(model, tmp_path / "few.gguf", "Q4_K_M")
    assert set(asked) == {"Q4_K", "Q6_K"}
    asked.clear()
    monkeypatch.setattr("minfer_models.gguf.encoders.WORTH_KERNELS", 1)
    quantize_gguf(model, tmp_path / "many.gguf", "Q4_K_M")
    assert asked == []
    wanted = (tmp_path / "numpy.gguf").read_bytes()
    assert (tmp_path / "many.gguf").read_bytes() == (tmp_path / "few.gguf").read_bytes() == wanted


def test_hostile_files_are_refused_at_open(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name, hostile in all_hostile().items():
        path = tmp_path / "h.gguf"
        path.write_bytes(hostile.content)
        if hostile.size > len(hostile.content):
            with path.open("r+b") as file:
                file.truncate(hostile.size)
        with pytest.raises(GGUFError):
            quantize_gguf(path, tmp_path / "out" / "q.gguf", "Q8_0", pure=True, allow_requantize=True)
        assert names(tmp_path / "out") == [], name


def test_a_name_of_a_shard_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="is named like one of 3 shards"):
        quantize_gguf(model, tmp_path / "q-00001-of-00003.gguf", "Q8_0")


def test_a_quantized_model_loads_and_says_what_gguf_py_s_bytes_say(model: Path, tmp_path: Path) -> None:
    done = quantize_gguf(model, tmp_path / "out.gguf", "Q8_0")
    eight = gguf.GGMLQuantizationType.Q8_0
    ours = GGMLQuantizationType.Q8_0
    with open_gguf(model) as file:
        sources = [
            array_source(name, quantize(t.data, eight), ours) if t.data.ndim == 2 else array_source(name, t.data)
            for name, t in tensors(model).items()
        ]
        theirs = write_gguf(tmp_path / "theirs.gguf", file.metadata, sources)[0]
    with load(theirs) as expected, load(done.path) as quantized:
        texts = [llm.generate("a model", max_tokens=8, temperature=0).text() for llm in (expected, quantized)]
    assert texts[0] == texts[1] != ""
