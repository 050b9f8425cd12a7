"""Developer tools: run as `python -m tools.NAME` from the repository root; never installed."""
