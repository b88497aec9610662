"""Lists, tuples, dicts, optionals and strings."""

from typing import Any

from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.lists import take_item
from compiler.ir.aten.lists import unpack as unpack_items
from compiler.ir.aten.memory import DictBox, ListBox, Parts, Ref, Stack
from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.numbers import decide, same_values
from compiler.ir.aten.registry import plain
from compiler.ir.aten.structure import kind_of
from compiler.ir.graph.builder import Builder
from compiler.ir.ops.shape import control, layout
from compiler.ir.shapes import extents as ex


def _content(node: Node, box: Any) -> Any:
    return node.memory.content(box) if isinstance(box, (ListBox, DictBox)) else box


def _position(b: Builder, node: Node, index: Any, count: int) -> int:
    """An index into a list of a known length."""
    position = b.facts.simplify(node.as_extent(index, "index"))
    if not isinstance(position, int):
        node.fail(
            "an index into a list is known only at run time",
            reason="data_dependent",
            hint="stack the list into a tensor",
        )
    if not -count <= position < count:
        node.fail(f"the index {position} is out of range for a list of {count}", reason="index")
    return int(position)


@plain("prim::ListConstruct")
def make_list(b: Builder, node: Node) -> Any:
    """A list of the arguments."""
    return node.memory.cell(node.args, ListBox)


@plain("prim::TupleConstruct")
def make_tuple(b: Builder, node: Node) -> Any:
    """A tuple of the arguments."""
    return tuple(node.args)


@plain("prim::DictConstruct")
def make_dict(b: Builder, node: Node) -> Any:
    """A dict of keys and values by turns."""
    return node.memory.cell(dict(zip(node.args[::2], node.args[1::2], strict=True)), DictBox)


@plain("prim::ListUnpack", "prim::TupleUnpack")
def unpack(b: Builder, node: Node) -> Any:
    """The items, as many as there are outputs."""
    content = _content(node, node.args[0])
    count = len(list(node.raw.outputs()))
    items = unpack_items(node.memory, content, count)
    return items[0] if count == 1 else items


@plain("prim::TupleIndex", "__getitem__")
def get_item(b: Builder, node: Node) -> Any:
    """One item of a list or tuple, the value of a key, or a character."""
    content, index = _content(node, node.args[0]), node.args[1]
    if isinstance(content, dict):
        if index not in content:
            node.fail(f"the dict has no key {index!r}", reason="index")
        return content[index]
    if isinstance(content, (Stack, Parts)):
        return take_item(node.memory, content, node.as_extent(index, "index"))
    position = b.facts.simplify(index) if isinstance(index, PrimExpr) else index
    if isinstance(position, PrimExpr) and all(kind_of(item) is not None for item in content):
        return _chosen(b, content, position)
    return content[_position(b, node, index, len(content))]


def _chosen(b: Builder, items: tuple[Any, ...], index: PrimExpr) -> Any:
    """The number at an index that only run time knows."""
    count = len(items)
    b.require(
        ex.both(ex.less(index, count), ex.greater_equal(index, -count)),
        f"the index {index} is out of range for a list of {count}",
    )
    result = items[-1]
    for i in reversed(range(count - 1)):
        result = ex.select(
            ex.either(ex.equal(index, i), ex.equal(index, i - count)),
            items[i],
            result,
        )
    return b.facts.simplify(result)


@plain("prim::TupleSlice", "slice")
def slice_items(b: Builder, node: Node) -> Any:
    """Part of a list, tuple or string."""
    content = _content(node, node.args[0])
    if node.kind == "prim::TupleSlice":
        return content[node.raw.i("beg") : node.raw.i("end")]
    if isinstance(content, (Stack, Parts)):
        node.fail(
            "part of a list whose length only run time knows is not supported",
            reason="data_dependent",
            hint=content.hint,
        )
    bounds = [
        None if item is None else b.facts.simplify(node.as_extent(item, "bound"))
        for item in node.args[1:4]
    ]
    if not all(item is None or isinstance(item, int) for item in bounds):
        node.fail("the bounds of a list's part are known only at run time", reason="data_dependent")
    part = content[slice(*bounds)]
    return node.memory.cell(part, ListBox) if isinstance(part, tuple) else part


@plain("len")
def length(b: Builder, node: Node) -> Any:
    """How many items."""
    content = _content(node, node.args[0])
    return content.length if isinstance(content, (Stack, Parts)) else len(content)


@plain("append")
def append(b: Builder, node: Node) -> Any:
    """One more item."""
    box, item = node.args
    node.memory.write(box, _extended(b, node, node.memory.content(box), item))
    return box


def _extended(b: Builder, node: Node, content: Any, item: Any) -> Any:
    """The content of a list with one more item."""
    if isinstance(content, Stack):
        return _pushed(b, node, content, item)
    return (*(node.items(node.names[0]) if isinstance(content, Parts) else content), item)


def _pushed(b: Builder, node: Node, stack: Stack, item: Any) -> Stack:
    if not isinstance(item, Ref):
        node.fail("a list that grows in a loop may hold only tensors", reason="unsupported_control")
    return Stack(control.push(b, stack.tensor, node.memory.hold(item)))


@plain("extend", "add_")
def extend(b: Builder, node: Node) -> Any:
    """All items of another list."""
    box, other = node.args
    content, added = node.memory.content(box), node.memory.content(other)
    if isinstance(added, (Stack, Parts)):
        node.fail(
            "a list is extended by one whose length only run time knows",
            reason="data_dependent",
            hint=added.hint,
        )
    for item in added:
        content = _extended(b, node, content, item)
    node.memory.write(box, content)
    return box


@plain("insert")
def insert(b: Builder, node: Node) -> None:
    """An item before an index."""
    box, _, item = node.args
    content = list(node.items(node.names[0]))
    content.insert(node.int(node.names[1]), item)
    node.memory.write(box, tuple(content))


@plain("pop")
def pop(b: Builder, node: Node) -> Any:
    """The item at an index taken out, or the value of a key."""
    box = node.args[0]
    content = node.memory.content(box)
    if isinstance(content, dict):
        rest = dict(content)
        item = rest.pop(node.args[1])
        node.memory.write(box, rest)
        return item
    items = list(node.items(node.names[0]))
    item = items.pop(node.int(node.names[1], -1))
    node.memory.write(box, tuple(items))
    return item


@plain("clear")
def clear(b: Builder, node: Node) -> None:
    """All items taken out."""
    node.memory.write(node.args[0], {} if isinstance(node.args[0], DictBox) else ())


@plain("reverse")
def reverse(b: Builder, node: Node) -> None:
    """Items in the opposite order, in place."""
    content = node.memory.content(node.args[0])
    if isinstance(content, Stack):
        node.memory.write(
            node.args[0],
            Stack(layout.strided_slice(b, content.tensor, 0, -1, -layout.INT64_MAX, -1)),
        )
    else:
        node.memory.write(node.args[0], node.items(node.names[0])[::-1])


@plain("_set_item")
def set_item(b: Builder, node: Node) -> Any:
    """An item or a key's value replaced."""
    box, key, value = node.args
    content = node.memory.content(box)
    if isinstance(content, dict):
        node.memory.write(box, {**content, key: value})
        return None
    items = list(node.items(node.names[0]))
    items[_position(b, node, key, len(items))] = value
    node.memory.write(box, tuple(items))
    return box


@plain("list", "copy", "prim::tolist")
def copy_list(b: Builder, node: Node) -> Any:
    """A list of the same items; of a string, its characters."""
    content = _content(node, node.args[0])
    if isinstance(content, dict):
        return node.memory.cell(dict(content), DictBox)
    items = content if isinstance(content, (Stack, Parts)) else tuple(content)
    return node.memory.cell(items, ListBox)


@plain("__contains__")
def contains(b: Builder, node: Node) -> Any:
    """Tell whether a list has an item, or a dict a key."""
    content, item = _content(node, node.args[0]), node.args[1]
    if isinstance(content, (dict, str)):
        return item in content
    present: Any = False
    for other in node.items(node.names[0]):
        same = same_values(b, node, item, other)
        present = same if present is False else ex.either(present, same)
    return decide(b, present)


@plain("keys", "values", "items")
def entries(b: Builder, node: Node) -> Any:
    """The keys, the values, or both, of a dict in order."""
    content = node.memory.content(node.args[0])
    items = {
        "aten::keys": content.keys,
        "aten::values": content.values,
        "aten::items": content.items,
    }[node.kind]()
    return node.memory.cell(tuple(items), ListBox)


@plain("get", "setdefault")
def get_key(b: Builder, node: Node) -> Any:
    """The value of a key, or what is given for a missing one."""
    content = node.memory.content(node.args[0])
    default = node.args[2] if len(node.args) > 2 else None
    if node.kind == "aten::setdefault" and node.args[1] not in content:
        node.memory.write(node.args[0], {**content, node.args[1]: default})
    return content.get(node.args[1], default)


@plain("__is__", "__isnot__")
def identity(b: Builder, node: Node) -> bool:
    """Compare with None, which is all that programs ask by `is`."""
    left, right = node.args
    same = (left is None) == (right is None) and (left is None or left is right)
    return same if node.kind == "aten::__is__" else not same


@plain("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "_unwrap_optional")
def unwrap_optional(b: Builder, node: Node) -> Any:
    """The value, whose type the program has checked."""
    if node.kind == "aten::_unwrap_optional" and node.args[0] is None:
        node.fail("an optional is unwrapped that is None", reason="raises")
    return node.args[0]


@plain("__range_length")
def range_length(b: Builder, node: Node) -> Any:
    """How many numbers a range has."""
    start, end, step = node.args
    if not isinstance(step, int):
        node.fail("a range's step is known only at run time", reason="data_dependent")
    span = ex.sub(end, start) if step > 0 else ex.sub(start, end)
    return b.facts.simplify(ex.maximum(ex.ceildiv(span, abs(step)), 0))


@plain("__derive_index")
def range_item(b: Builder, node: Node) -> Any:
    """The number of a range at an index."""
    index, start, step = node.args
    return b.facts.simplify(ex.add(start, ex.mul(index, step)))


@plain("format", "str", "join", "upper", "lower", "strip", "percentFormat", "replace")
def text(b: Builder, node: Node) -> str:
    """Text for messages."""
    first, rest = node.args[0], node.args[1:]
    if node.kind == "aten::format":
        return str(first).format(*map(str, rest))
    if node.kind == "aten::percentFormat":
        return str(first) % tuple(map(str, rest))
    if node.kind == "aten::join":
        return str(first).join(map(str, node.memory.content(rest[0])))
    if node.kind == "aten::str":
        return str(first)
    return str(getattr(str(first), node.kind.removeprefix("aten::"))(*rest))


@plain("startswith", "endswith")
def text_test(b: Builder, node: Node) -> bool:
    """Tell whether a string begins, or ends, with another."""
    return bool(getattr(node.args[0], node.kind.removeprefix("aten::"))(node.args[1]))


@plain("warn", "prim::Print", "prim::profile", "_assert_tensor_metadata")
def quiet(b: Builder, node: Node) -> None:
    """Said to nobody."""


@plain("prim::rangelist")
def range_list(b: Builder, node: Node) -> Any:
    """The numbers below a bound."""
    return node.memory.cell(tuple(range(node.int(node.names[0]))), ListBox)
