"""The public test kit: random graphs and operand values, the op matrix, tolerance classes, the support matrix.

Our own tests and a plug-in backend's tests use the same pieces. Only `strategies` needs hypothesis.
"""
