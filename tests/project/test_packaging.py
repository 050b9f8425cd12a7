from __future__ import annotations

import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", requirement)[0] for requirement in requirements}


def test_running_a_model_on_a_cpu_needs_these_packages_and_no_others() -> None:
    expected = "numpy numba gguf networkx tokenizers jinja2 typer rich huggingface_hub llguidance prompt_toolkit"
    assert names(PROJECT["dependencies"]) == set(expected.split())


@pytest.mark.parametrize("package", ["minfer_ir", "minfer_kernels", "minfer_models"])
def test_types_are_shipped(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    missing = [
        str(folder.relative_to(ROOT))
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}
        if not (folder / "__init__.py").exists()
    ]
    assert missing == []  # setuptools' find would leave such a folder out of the wheel


@pytest.mark.parametrize("script", sorted(PROJECT["scripts"]))
def test_every_script_leads_to_a_function(script: str) -> None:
    module, function = PROJECT["scripts"][script].split(":")
    assert callable(getattr(import_module(module), function))


def test_the_installed_version_is_the_projects() -> None:
    assert version("minfer") == PROJECT["version"]


def test_the_changelog_leads_with_what_is_unreleased() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
