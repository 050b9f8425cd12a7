"""What runs a plan: the backend protocol, buffers, executables, fill guards, tracing."""
