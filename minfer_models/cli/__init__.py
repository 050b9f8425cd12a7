"""The `minfer` command: one file per subcommand, each a thin layer over the Python interface."""
