"""QuantizeLinear and DequantizeLinear pairs, and integer matmuls after them."""

from tests.fuzz.draft import Draft, Value
from tests.fuzz.operators.convolution import windows
from tests.fuzz.registry import operator


def pair(draft: Draft, x: Value, dtype: str) -> Value:
    """Rounded to 8 bits and back."""
    draft.quantized = True
    zero = 128 if dtype == "uint8" and draft.chance(0.5) else 0
    scale, point = draft.constant(0.04), draft.constant(zero, dtype)
    quantize = draft.node("QuantizeLinear", [x.name, scale, point])[0]
    return draft.apply("DequantizeLinear", [quantize, scale, point], x.shape)


def _weight(draft: Draft, shape: tuple[int, ...], fan: int, axis: int) -> str:
    """8-bit weights with a scale for each of what `axis` counts."""
    full = draft.constant(draft.random.integers(-127, 128, shape), "int8")
    scale = draft.constant(draft.random.uniform(0.5, 1.5, shape[axis]) / 70 * fan**-0.5)
    zero = draft.constant([0] * shape[axis], "int8")
    return draft.node("DequantizeLinear", [full, scale, zero], axis=axis)[0]


@operator(0.5)
def quantize(draft: Draft) -> None:
    pair(draft, draft.pick(), draft.choose(("uint8", "int8")))


@operator(0.5)
def quantize_function(draft: Draft) -> None:
    """A function between two pairs, as quantizers write squeeze-excite blocks."""
    x = pair(draft, draft.pick(), "int8")
    y = draft.apply(draft.choose(("Sigmoid", "Tanh", "Erf", "Relu")), [x.name], x.shape)
    pair(draft, y, "int8")


@operator(0.6)
def quantize_conv(draft: Draft) -> None:
    x = draft.pick(4)
    channels, size, stride = x.fix_extents(1), draft.choose((1, 3)), draft.choose((1, 2))
    deep = size == 3 and draft.chance(0.3)
    out, group = (channels, channels) if deep else (draft.channels(), 1)
    padded = {"pads": [size // 2] * 4}
    space = [windows(x.shape[2 + index], index, size, stride, 1, 2, padded) for index in range(2)]
    arguments = pair(draft, x, "uint8")
    shape = (out, channels // group, size, size)
    weight = _weight(draft, shape, channels // group * size * size, 0)
    y = draft.apply(
        "Conv", [arguments.name, weight, draft.weight(out)], (x.shape[0], out, *space),
        strides=[stride] * 2, group=group, **padded,
    )  # fmt: skip
    pair(draft, y, "uint8")


@operator(0.5)
def quantize_matmul(draft: Draft) -> None:
    x = draft.pick(2, 3)
    depth, columns = x.fix_extents(-1), draft.channels()
    arguments = pair(draft, x, "uint8")
    weight = _weight(draft, (depth, columns), depth, 1)
    y = draft.apply("MatMul", [arguments.name, weight], (*x.shape[:-1], columns))
    pair(draft, y, "int8")


@operator(0.5)
def dynamic_matmul(draft: Draft) -> None:
    """Scales found at run time, as dynamic quantizers write it."""
    x = draft.pick(2, 3)
    x.fill_inputs(*range(x.rank))
    draft.quantized = True
    depth, columns = x.fix_extents(-1), draft.channels()
    full = draft.constant(draft.random.integers(-127, 128, (depth, columns)), "int8")
    arguments, scale, zero = draft.node("DynamicQuantizeLinear", [x.name], count=3)
    total = draft.node("MatMulInteger", [arguments, full, zero])[0]
    wide = draft.node("Cast", [total], to=1)[0]
    factor = draft.node("Mul", [scale, draft.constant(depth**-0.5 / 70)])[0]
    draft.apply("Mul", [wide, factor], (*x.shape[:-1], columns))
