"""Relax operators by how their result's elements depend on those of their operands."""

from tvm import relax

_ELEMENTWISE = """
    abs add astype ceil clip cos divide equal erf exp floor floor_divide floor_mod greater
    greater_equal isnan less less_equal log logical_and logical_not logical_or logical_xor maximum
    minimum mod multiply negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6 nn.selu nn.silu
    nn.softplus not_equal power round rsqrt sigmoid sign sin sqrt square subtract tan tanh where
"""
ELEMENTWISE = frozenset(f"relax.{name}" for name in _ELEMENTWISE.split())
REDUCTIONS = {
    f"relax.{name}": getattr(relax.op, name) for name in ("mean", "sum", "max", "min", "prod")
}
"""By operator: its constructor."""
