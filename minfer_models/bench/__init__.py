"""minfer-bench: how fast a model runs here, compared with what, and where the time goes.

`app` holds the command; every subcommand is a folder (`throughput`, `ab`) with its command line, its measuring and its
report. What they share lies beside this file: a `workload` is timed on one or more `sides` in matched `rounds`, `stats`
summarizes them, `conditions` say what they were taken on, and `report` writes the result.
"""
