"""docs/SUPPORT-MATRIX.md where torch or triton isn't installed: those columns stay, the others must be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.support_matrix import Column, Supporter
from tools.support_matrix import page_of, without_columns

CAPABILITIES = NumpyBackend.capabilities
NO_GPU = {"gpu": "triton"}


def made(name: str) -> Supporter:
    return Column(name, CAPABILITIES, lambda op, *_: f"no {op} | here" if op == "matmul" else None)


def unmade() -> Supporter:
    raise AssertionError("this column can't be made here")


def pages(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(page_of({"gpu": lambda: made("gpu"), "numpy": NumpyBackend}, {}, path), encoding="utf-8")
    return path


def test_a_column_that_cannot_be_made_stays_as_it_was(tmp_path: Path) -> None:
    kept = pages(tmp_path)
    assert page_of({"gpu": unmade, "numpy": NumpyBackend}, NO_GPU, kept) == kept.read_text(encoding="utf-8")
    assert "no matmul \\| here" in kept.read_text(encoding="utf-8")


def test_a_page_whose_other_columns_are_stale_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    kept = pages(tmp_path)
    kept.write_text(kept.read_text(encoding="utf-8").replace(" yes |\n", " no |\n", 1), encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"page\.md is stale.*: column gpu needs triton"):
        page_of({"gpu": unmade, "numpy": NumpyBackend}, NO_GPU, kept)


def test_only_whole_columns_of_that_name_go() -> None:
    page = "gpu\n\n| op | gpu | numpy |\n| --- | --- | --- |\n| `gpu` | a \\| b | gpu |\n\n| x | numpy |\n| gpu | yes |"
    rest = "gpu\n\n| op | numpy |\n| --- | --- |\n| `gpu` | gpu |\n\n| x | numpy |\n| gpu | yes |"
    assert without_columns(page, NO_GPU) == rest
