"""JSON Schema: checked keyword by keyword before anything is compiled."""
