"""Growing random graphs op by op, from the declarations: what the `graphs` strategy is made of.

The declared operand patterns choose the sources. An op whose operands depend on each other in other ways has a maker;
an op from elsewhere takes its attrs from its own test cases.
"""
