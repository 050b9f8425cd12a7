"""`minfer-bench MODEL`: tokens per second of prefill and decode."""
