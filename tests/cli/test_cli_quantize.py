"""`minfer quantize`: what it writes, lists, reports and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_calls import error_line, minfer, usage_error

from minfer_models.cli.quantize import TYPES
from minfer_models.gguf import open_gguf
from minfer_models.gguf.quantize import FILE_TYPES
from minfer_models.synthetic import SyntheticModel, write_model


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 96 and of 256."""
    model = SyntheticModel(n_blocks=1, width=96, ffn_width=256, n_heads=2, n_kv_heads=1, weights="F16")
    return write_model(tmp_path_factory.mktemp("narrow") / "m-F16.gguf", model)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_help_names_every_file_type() -> None:
    assert tuple(FILE_TYPES) == TYPES


def test_a_file_is_written_and_its_fallbacks_reported(narrow: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = minfer("quantize", narrow, out, "--type", "q4_k_m", "--threads", 2)
    assert done.code == 0, done.err
    assert sorted(done.err.splitlines()) == [
        "minfer: rows of 96 are not whole Q4_K blocks of 256: Q5_0 instead (blk.0.attn_q.weight and 4 more)",
        "minfer: rows of 96 are not whole Q6_K blocks of 256: Q8_0 instead (blk.0.attn_v.weight)",
    ]
    totals, written = done.out.splitlines()
    assert totals.startswith("8 of 11 tensors change: ") and totals.endswith("bits a weight")
    assert written == f"{out}: {out.stat().st_size / 2**20:.1f} MiB"
    with open_gguf(out) as file:
        kinds = {name.split(".")[-2]: info.type_name for name, info in file.tensors.items()}
    assert kinds == {
        "token_embd": "Q8_0", "attn_norm": "F32", "attn_q": "Q5_0", "attn_k": "Q5_0", "attn_v": "Q8_0",
        "attn_output": "Q5_0", "ffn_norm": "F32", "ffn_gate": "Q5_0", "ffn_up": "Q5_0", "ffn_down": "Q6_K",
        "output_norm": "F32",
    }  # fmt: skip


def test_a_dry_run_lists_and_writes_nothing(narrow: Path, tmp_path: Path) -> None:
    for more in ((), (tmp_path / "out.gguf",)):
        done = minfer("quantize", narrow, *more, "--type", "Q4_0", "--tensor-type", "ffn_up=Q6_K", "--dry-run")
        assert (done.code, done.err) == (0, "")
        rows = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines()}
        assert rows["blk.0.ffn_down.weight"] == "[96, 256] F16 -> Q4_0 0.047 -> 0.013 MiB"
        assert rows["blk.0.attn_norm.weight"] == "[96] F32 0.000 -> 0.000 MiB"
        assert rows["blk.0.ffn_up.weight"] == (
            "[256, 96] F16 -> Q8_0 0.047 -> 0.025 MiB rows of 96 are not whole Q6_K blocks of 256: Q8_0 instead"
        )
        assert done.out.splitlines()[-1].startswith("8 of 11 tensors change")
    assert names(tmp_path) == []


def test_options_of_llama_quantize_are_taken(narrow: Path) -> None:
    for option in ("--leave-output-tensor", "--keep-output"):
        done = minfer("quantize", narrow, "--type", "Q4_0", option, "--dry-run")
        assert "token_embd.weight" in done.out and "the head is kept" in done.out
    for option in ("--output-tensor-type", "--output-type", "--token-embedding-type"):
        done = minfer("quantize", narrow, "--type", "Q4_0", option, "q5_1", "--dry-run")
        row = next(line for line in done.out.splitlines() if line.startswith("token_embd"))
        assert "F16 -> Q5_1" in row and row.endswith("asked for")
        assert "asked for (" not in done.out  # no fallback
    done = minfer("quantize", narrow, "--type", "Q6_K", "--pure", "--dry-run")
    assert "ffn_down.weight" in done.out and "F16 -> Q6_K" in done.out


def test_what_cannot_be_done_is_one_line(narrow: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert "name the file to write, OUT, or ask for --dry-run" in usage_error(
        minfer("quantize", narrow, "--type", "Q4_0")
    )
    assert "Missing option '--type'" in usage_error(minfer("quantize", narrow, out))
    assert error_line(minfer("quantize", narrow, out, "--type", "Q9")).startswith(
        "minfer: a file can't be quantized to 'Q9'; it can to F32, F16, BF16"
    )
    assert "none.gguf" in error_line(minfer("quantize", tmp_path / "none.gguf", out, "--type", "Q4_0"))
    assert "is what is read" in error_line(minfer("quantize", narrow, narrow, "--type", "Q4_0", "--force"))
    assert "there is no folder" in error_line(minfer("quantize", narrow, tmp_path / "no" / "o", "--type", "Q4_0"))
    assert minfer("quantize", narrow, out, "--type", "Q4_0").code == 0
    before = out.read_bytes()
    assert "exists already" in error_line(minfer("quantize", narrow, out, "--type", "Q8_0"))
    assert "is quantized already (Q4_0)" in error_line(
        minfer("quantize", out, tmp_path / "again.gguf", "--type", "Q8_0")
    )
    assert out.read_bytes() == before
    assert minfer("quantize", narrow, out, "--type", "Q8_0", "--force").code == 0
    assert names(tmp_path) == ["out.gguf"]
