"""Fuzzing of everything that reads a model file: seed files, mutations, and a child process that tries them.

`python -m tools.fuzz` is the command, tests/fuzz the part of the suite. What it asks of every file is in
docs/hostile-files.md.
"""
