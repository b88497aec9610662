"""How TVM marks tensor programs for FuseOps."""

BROADCAST, INJECTIVE, FUSABLE, OPAQUE = 1, 2, 4, 8
"""TVM's kinds: up to BROADCAST each result depends on the elements at its own indices. Programs up
to BROADCAST are fused behind a FUSABLE one, such as a matmul; an OPAQUE one is a kernel of its own.
"""
MARK = "op_pattern"
