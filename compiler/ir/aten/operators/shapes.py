"""Sizes, ranks and dtypes of tensors, and the numbers in them, as programs ask for them."""

from typing import Any

from compiler.ir.aten.dtypes import NUMBERS
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.aten.structure import Number, number_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def _self(node: Node) -> Value:
    return node.value(node.names[0])


@op("size", "prim::shape", "sym_size")
def size(b: Builder, node: Node) -> Any:
    """All extents in a list, or that of one axis."""
    x = _self(node)
    if "dim" in node.names:
        return x.shape[node.axis("dim", len(x.shape))]
    return list(x.shape)


@op("dim", "prim::ndim", "ndimension")
def dim(b: Builder, node: Node) -> int:
    """The rank."""
    return len(_self(node).shape)


@op("numel", "sym_numel")
def numel(b: Builder, node: Node) -> Any:
    """The number of elements."""
    return b.facts.simplify(ex.prod(_self(node).shape))


@op("len")
def length(b: Builder, node: Node) -> Any:
    """The first extent."""
    return _self(node).shape[0]


@op("prim::dtype")
def dtype(b: Builder, node: Node) -> int:
    """The code of the dtype."""
    return NUMBERS[_self(node).dtype]


@op("is_floating_point")
def is_floating_point(b: Builder, node: Node) -> bool:
    """True if the dtype is a float."""
    return "float" in _self(node).dtype


def _always(value: Any, *names: str) -> None:
    @op(*names)
    def handler(b: Builder, node: Node) -> Any:
        return value

    handler.__doc__ = f"{value} for every tensor."


_always("cpu", "prim::device", "prim::type")
_always(0, "prim::layout")
_always(
    False, "is_autocast_enabled", "is_autocast_cpu_enabled", "is_grad_enabled",
    "is_complex", "prim::is_cuda", "prim::is_xpu", "prim::is_mps", "prim::is_sparse",
    "prim::is_quantized", "prim::is_nested",
    "prim::is_mkldnn",
    "prim::requires_grad", "prim::is_vulkan", "prim::is_meta", "prim::is_sparse_csr",
    "prim::is_ipu", "prim::is_maia", "prim::is_mtia",
    "is_inference",
)  # fmt: skip


@op("Int", "IntImplicit")
def as_int(b: Builder, node: Node) -> Any:
    """The integer in a tensor of one element; a float is truncated."""
    return _number(b, node, Number.INT)


@op("Float", "FloatImplicit")
def as_float(b: Builder, node: Node) -> Any:
    """The float in a tensor of one element."""
    return _number(b, node, Number.FLOAT)


@op("Bool", "is_nonzero")
def as_bool(b: Builder, node: Node) -> Any:
    """True if the only element of a tensor is not zero."""
    return _number(b, node, Number.BOOL)


@op("item", "ScalarImplicit")
def item(b: Builder, node: Node) -> Any:
    """The number in a tensor of one element, of the tensor's kind."""
    dtype = _self(node).dtype
    return _number(
        b,
        node,
        Number.BOOL if dtype == "bool" else Number.FLOAT if "float" in dtype else Number.INT,
    )


def _number(b: Builder, node: Node, number: Number) -> Any:
    return number_of(b, ew.cast(b, layout.reshape(b, _self(node), []), number.value), number)


@op("prim::data")
def data(b: Builder, node: Node) -> Any:
    """The tensor without its history."""
    return node.ref(node.names[0])
