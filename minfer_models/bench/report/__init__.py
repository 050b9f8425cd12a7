"""Writing a measurement: markdown for a reader, CSV for a table, JSON with a versioned schema for programs."""
