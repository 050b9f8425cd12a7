from __future__ import annotations

from pathlib import Path

import pytest

from tools.checks.imports import check_tree

ROOT = Path(__file__).resolve().parents[2]


def violations(root: Path, module: str, source: str) -> list[str]:
    for package in ("minfer_ir", "minfer_kernels", "minfer_models"):
        (root / package).mkdir(exist_ok=True)
    path = root / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    found = [str(violation) for violation in check_tree(root)]
    assert all(line.startswith(f"{module}:") for line in found)
    return [line.removeprefix(f"{module}:") for line in found]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("minfer_ir/a.py", "import minfer_kernels"),
        ("minfer_ir/a.py", "import minfer_models.arch as arch"),
        ("minfer_ir/a/b.py", "from minfer_models.gguf import reader"),
        ("minfer_ir/a.py", "def f():\n    from minfer_kernels.cpu import tape"),
        ("minfer_ir/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import minfer_models"),
        ("minfer_ir/a.py", "import importlib\nimportlib.import_module('minfer_kernels.cpu')"),
        ("minfer_ir/a.pyi", "from minfer_kernels import cpu"),
        ("minfer_kernels/cpu/a.py", "from minfer_models import load"),
    ],
)
def test_an_import_upwards_is_caught(tmp_path: Path, module: str, source: str) -> None:
    found = violations(tmp_path, module, source)
    assert len(found) == 1
    assert "imports run minfer_models -> minfer_kernels -> minfer_ir" in found[0]
    assert found[0].startswith(f"{len(source.splitlines())}:")


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("minfer_ir/a.py", "import numba", "minfer_ir must not import numba; it may import networkx, numpy"),
        ("minfer_ir/a.py", "import networkx as nx", "minfer_ir imports networkx inside functions only"),
        ("minfer_ir/a.py", "import torch.nn", "minfer_ir must not import torch; it may import networkx, numpy"),
        ("minfer_ir/a.py", "import hypothesis", "minfer_ir must not import hypothesis; it may import networkx, numpy"),
        ("minfer_ir/a.py", "import tools.generate", "minfer_ir must not import tools; it may import networkx, numpy"),
        ("minfer_kernels/cpu/a.py", "import torch", "minfer_kernels.cpu must not import torch"),
        ("minfer_models/a.py", "import requests", "minfer_models must not import requests"),
        ("minfer_models/a.py", "import fastapi", "minfer_models must not import fastapi"),
        ("minfer_models/a.py", "from minfer_ir.testing.strategies import x", "strategies needs hypothesis"),
        ("minfer_models/a.py", "from minfer_ir.testing import strategies", "strategies needs hypothesis"),
    ],
)
def test_a_third_party_import_out_of_place_is_caught(tmp_path: Path, module: str, source: str, expected: str) -> None:
    found = violations(tmp_path, module, source)
    assert found == [found[0]]
    assert expected in found[0]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['HOME']",
        "import os\nos.getenv('HOME')",
        "import os\ndef f():\n    return dict(os.environ)",
        "from os import environ",
        "from os import getenv as g",
    ],
)
def test_a_read_of_the_environment_is_caught(tmp_path: Path, source: str) -> None:
    found = violations(tmp_path, "minfer_models/a.py", source)
    assert found == [f"{len(source.splitlines())}: {found[0].split(': ', 1)[1]}"]
    assert "the environment is read in minfer_models/settings.py alone" in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("minfer_models/settings.py", "import os\nos.environ.get('MINFER_THREADS')"),
        ("minfer_models/a.py", "import minfer_ir, minfer_kernels.cpu, numpy, gguf\nfrom . import b\nfrom .c import d"),
        ("minfer_models/__init__.py", "from .settings import Settings\nfrom . import hub"),
        ("minfer_models/server/a.py", "import fastapi, pydantic"),
        ("minfer_kernels/cpu/a.py", "import numba, llvmlite.ir\nfrom minfer_ir.graph import Graph"),
        ("minfer_ir/a.py", "import numpy as np, dataclasses\ndef f():\n    import networkx"),
        ("minfer_ir/testing/strategies.py", "import hypothesis"),
        ("minfer_models/a.py", "from minfer_ir.testing.tolerances import x"),
        ("minfer_ir/passes/a.py", "from ..graph import Graph\nfrom . import cse"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, module: str, source: str) -> None:
    assert violations(tmp_path, module, source) == []


def test_this_repository_has_none() -> None:
    assert [str(violation) for violation in check_tree(ROOT)] == []
