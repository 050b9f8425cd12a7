"""Ordinary English prose, for models to read."""

from __future__ import annotations

from pathlib import Path

TEXT = (Path(__file__).parent / "data" / "alice.txt").read_text(encoding="utf-8")
