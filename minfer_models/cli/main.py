"""The `minfer` command's entry point."""

from __future__ import annotations

from collections.abc import Callable

from minfer_models.cli.entry import start


def run() -> None:
    """Entry point."""
    start(_app)


def _app() -> Callable[[], object]:
    from minfer_models.cli.app import app

    return app


if __name__ == "__main__":
    run()
