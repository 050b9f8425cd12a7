"""`minfer-bench start`: how long a new process takes to its first token, and where that time goes."""
