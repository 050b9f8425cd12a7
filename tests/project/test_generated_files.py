from __future__ import annotations

from pathlib import Path

from minfer_models.settings import settings_page
from tools.generate import GENERATED, Generated, stale, write

ROOT = Path(__file__).resolve().parents[2]
PAGE = (Generated("docs/settings.md", "minfer_models.settings:settings_page"),)


def test_writes_what_the_source_says_and_only_when_it_differs(tmp_path: Path) -> None:
    assert write(tmp_path, PAGE) == ["docs/settings.md"]
    assert (tmp_path / "docs/settings.md").read_text() == settings_page()
    assert write(tmp_path, PAGE) == []


def test_a_stale_file_is_named_with_the_lines_that_differ(tmp_path: Path) -> None:
    write(tmp_path, PAGE)
    path = tmp_path / "docs/settings.md"
    path.write_text(path.read_text().replace("MINFER_THREADS", "MINFER_CORES"))
    ((entry, diff),) = stale(tmp_path, PAGE)
    assert entry.path == "docs/settings.md"
    assert "-| `MINFER_CORES`" in diff
    assert "+| `MINFER_THREADS`" in diff


def test_a_missing_file_is_stale(tmp_path: Path) -> None:
    assert [entry.path for entry, _ in stale(tmp_path, PAGE)] == ["docs/settings.md"]


def test_this_repositorys_files_are_fresh() -> None:
    assert [(entry.path, diff) for entry, diff in stale(ROOT, GENERATED)] == []
