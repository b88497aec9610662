"""Matrices, attention, norms, softmax and reductions."""

from tests.fuzz.draft import Draft, Inapplicable, Value, least
from tests.fuzz.registry import operator

HEADS = (1, 2, 3, 4)
REDUCTIONS = (
    "ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
)  # fmt: skip
FAR = 200.0
"""Beyond the 88 whose exponential float32 holds."""
HEAD_SIZES = (5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40)


def project(draft: Draft, x: Value, columns: int) -> Value:
    """The last axis by a constant matrix, mostly with a bias."""
    depth = x.fix_extents(-1)
    weight = draft.weight(depth, columns, fan=depth)
    shape = (*x.shape[:-1], columns)
    multiply_rows = draft.apply("MatMul", [x.name, weight], shape)
    if draft.chance(0.6):
        return draft.apply("Add", [multiply_rows.name, draft.weight(columns)], shape)
    return multiply_rows


@operator(4)
def matmul(draft: Draft) -> None:
    project(draft, draft.pick(2, 3, 4), draft.channels())


@operator(1)
def gemm(draft: Draft) -> None:
    x = draft.pick(2)
    depth, columns = x.fix_extents(1), draft.channels()
    turned = draft.chance(0.5)
    weight = draft.weight(*((columns, depth) if turned else (depth, columns)), fan=depth)
    bias = [draft.weight(columns)] if draft.chance(0.7) else []
    draft.apply(
        "Gemm", [x.name, weight, *bias], (x.shape[0], columns), transB=int(turned),
        alpha=draft.choose((1.0, 1.0, 0.5)),
    )  # fmt: skip


@operator(1)
def both_computed(draft: Draft) -> None:
    """x by itself turned, scaled by its depth."""
    x = draft.pick(3, 4)
    x.fill_inputs(-1)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = draft.node("Transpose", [x.name], perm=order)[0]
    multiply_rows = draft.node("MatMul", [x.name, turned])[0]
    scale = draft.constant(0.125)
    draft.apply("Mul", [multiply_rows, scale], (*x.shape[:-1], x.shape[-2]))


@operator(2)
def attention(draft: Draft) -> None:
    x = draft.pick(3)
    x.fill_inputs(1)
    heads, size, width = draft.choose(HEADS), draft.choose(HEAD_SIZES), draft.choose(HEAD_SIZES)
    batch, length, out = x.shape[0], x.shape[1], heads * width

    def split(depth: int, perm: list[int]) -> str:
        joined = project(draft, x, heads * depth)
        shape = draft.constant([0, 0, heads, depth], "int64")
        return draft.node("Transpose", draft.node("Reshape", [joined.name, shape]), perm=perm)[0]

    query, key, value = (
        split(size, [0, 2, 1, 3]), split(size, [0, 2, 3, 1]), split(width, [0, 2, 1, 3])
    )  # fmt: skip
    scores = draft.node("MatMul", [query, key])[0]
    if draft.chance(0.8):
        scores = draft.node("Mul", [scores, draft.constant(size**-0.5)])[0]
    weights = draft.node("Softmax", [scores], axis=-1)[0]
    mixed = draft.node("MatMul", [weights, value])[0]
    turned = draft.node("Transpose", [mixed], perm=[0, 2, 1, 3])[0]
    joined = draft.apply(
        "Reshape", [turned, draft.constant([0, 0, out], "int64")], (batch, length, out)
    )
    if draft.chance(0.5):
        project(draft, joined, draft.channels())


@operator(1)
def softmax(draft: Draft) -> None:
    x = draft.pick()
    axis = draft.axis(x)
    x.fill_inputs(axis)
    op = draft.choose(("Softmax", "Softmax", "LogSoftmax"))
    draft.apply(op, [x.name], x.shape, axis=axis - x.rank if draft.chance(0.5) else axis)


@operator(1.5)
def layer_norm(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    size = x.fix_extents(-1)
    inputs = [x.name, draft.weight(size)]
    if draft.chance(0.6):
        inputs.append(draft.weight(size))
    draft.apply("LayerNormalization", inputs, x.shape, epsilon=1e-2)


@operator(1)
def batch_norm(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    size = x.fix_extents(1)
    spread = draft.constant(draft.random.uniform(0.5, 2, size))
    inputs = [x.name, draft.weight(size), draft.weight(size), draft.weight(size), spread]
    draft.apply("BatchNormalization", inputs, x.shape)


@operator(0.7)
def instance_norm(draft: Draft) -> None:
    x = draft.pick(3, 4)
    size = x.fix_extents(1)
    x.fill_inputs(*range(2, x.rank))
    inputs = [x.name, draft.weight(size), draft.weight(size)]
    draft.apply("InstanceNormalization", inputs, x.shape, epsilon=1e-2)


@operator(2)
def reduce(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    first = draft.axis(x)
    axes = sorted({first, draft.axis(x)}) if draft.chance(0.4) else [first]
    x.fill_inputs(*axes)
    keep = draft.chance(0.6)
    shape = [1 if index in axes else extent for index, extent in enumerate(x.shape)]
    if not keep:
        shape = [extent for index, extent in enumerate(x.shape) if index not in axes]
    if not shape:
        raise Inapplicable
    op = draft.choose(REDUCTIONS)
    arguments = [axis - x.rank if draft.chance(0.3) else axis for axis in axes]
    names = draft.constant(arguments, "int64")
    draft.apply(op, [x.name, names], shape, keepdims=int(keep))


@operator(0.5)
def far_apart(draft: Draft) -> None:
    """Rows or columns that lie far from 0 and from each other, in front of exponentials."""
    x = draft.pick(2, 3, 4)
    axis = draft.choose((-1, -2))
    x.fill_inputs(axis)
    size = x.fix_extents(axis)
    offsets = draft.random.uniform(-FAR, FAR, (size, 1) if axis == -2 else size)
    moved = draft.node("Add", [x.name, draft.constant(offsets)])[0]
    if draft.chance(0.5):
        op = draft.choose(("Softmax", "LogSoftmax"))
        exponential = draft.apply(op, [moved], x.shape, axis=axis)
        if op == "LogSoftmax":
            draft.apply("Mul", [exponential.name, draft.constant(1 / FAR)], x.shape)
        return
    shape = [*x.shape]
    shape[axis] = 1
    names = draft.constant([axis], "int64")
    total = draft.node("ReduceLogSumExp", [moved, names], keepdims=1)[0]
    draft.apply("Mul", [total, draft.constant(1 / FAR)], tuple(shape))


@operator(0.4)
def running_sum(draft: Draft) -> None:
    x = draft.pick(2, 3)
    axis = draft.axis(x)
    if least(x.shape[axis]) < 1:
        raise Inapplicable
    total = draft.node("CumSum", [x.name, draft.constant(axis, "int64")])[0]
    draft.apply("Mul", [total, draft.constant(0.2)], x.shape)
