from __future__ import annotations

from pathlib import Path

import pytest

from tools.checks.links import anchors, broken_links

ROOT = Path(__file__).resolve().parents[2]


def write(root: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_good_links_pass(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "README.md": "[a](docs/a.md) [b](docs/a.md#the-b-part) [top](#minfer) ![p](docs/p.svg) <https://x.org>\n\n"
            "# minfer\n\n[web](https://example.org/none) [mail](mailto:a@b.c)\n\n```md\n[not](a/link.md)\n```\n"
            "`[nor](this.md)`\n\n[ref]: docs/a.md\n",
            "docs/a.md": '# A\n\n## The `b` part\n\n[other](sub/c.md "title") [up](#a)\n',
            "docs/sub/c.md": "# C\n\n[back](../a.md)\n",
            "docs/p.svg": "<svg/>",
        },
    )
    assert broken_links(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        ("[a](gone.md)", "gone.md", "no such file"),
        ("![a](gone.png)", "gone.png", "no such file"),
        ("[a [nested]](gone.md)", "gone.md", "no such file"),
        ("[![badge](other.md)](gone.md)", "gone.md", "no such file"),
        ("[r]: gone.md", "gone.md", "no such file"),
        ("[a](other.md#gone)", "other.md#gone", "no such heading"),
        ("[a](#gone)", "#gone", "no such heading"),
        ("[a](../README.md)", "../README.md", "the built site holds docs/ alone"),
    ],
)
def test_a_broken_link_is_named_with_its_line(tmp_path: Path, text: str, target: str, reason: str) -> None:
    write(tmp_path, {"README.md": "# R", "docs/other.md": "# Other", "docs/page.md": f"# Page\n\n{text}\n"})
    found = broken_links(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"docs/page.md:3: {target}: {reason}")


def test_anchors_are_spelled_as_github_spells_them() -> None:
    text = '# KV cells & runs\n## Q4_K: 256 weights\n## Same\n## Same\n<a id="own"></a>\n```\n# no heading\n```\n'
    assert anchors(text) == {"kv-cells--runs", "q4_k-256-weights", "same", "same-1", "own"}


def test_this_repository_has_none() -> None:
    assert broken_links(ROOT) == []
