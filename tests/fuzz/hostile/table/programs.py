"""TorchScript: what addresses, counts and divides, by torch's own rules."""

from tests.fuzz.hostile.subject import Program
from tests.fuzz.hostile.values import SIZES, Drawing, index, integer, real

_X = {"x": "float32[n,c]"}
_ROWS = {**_X, "i": "int64[k]"}
_SMALL = {"n": (2, 5), "c": (2, 5), "a": (1, 2), "b": (1, 2)}


def _read(name: str, source: str, low: str | None = None) -> Program:
    """Reads rows of x at i; torch counts from the end where low is not 0."""
    return Program(f"aten-{name}", source, _ROWS, {"i": integer(low or "-n", "n-1")})


def _written(name: str, source: str) -> Program:
    inputs = {**_X, "i": "int64[a,b]", "u": "float32[a,b]"}
    return Program(f"aten-{name}", source, inputs, {"i": integer(0, "n-1")}, _SMALL, False)


def _rows(name: str, source: str) -> Program:
    inputs = {**_X, "i": "int64[k]", "u": "float32[k,c]"}
    return Program(f"aten-{name}", source, inputs, {"i": integer(0, "n-1")}, {}, False)


def _numbers(name: str, source: str, **draws: Drawing) -> Program:
    """Run-time numbers, each an input without axes."""
    inputs = {**_X, **dict.fromkeys(draws, "int64[]")}
    return Program(f"aten-{name}", source, inputs, draws)


def _divided(name: str, source: str, dtype: str = "int64") -> Program:
    inputs = {"a": f"{dtype}[n]", "b": f"{dtype}[n]"}
    return Program(
        f"aten-{name}-{dtype}", source, inputs, {"a": integer(-9, 9), "b": integer(1, 9)}
    )


SUBJECTS = (
    _read("embedding", "torch.embedding(x, i)", "0"),
    _read("index_select", "torch.index_select(x, 0, i)", "0"),
    _read("index", "x[i]"),
    _read("index-two", "x[i % 2, i]", "0"),
    _read("take", "torch.take(x, i)"),
    _read("index-of-columns", "x[:, i]"),
    Program(
        "aten-gather",
        "torch.gather(x, 0, i)",
        {**_X, "i": "int64[a,b]"},
        {"i": integer(0, "n-1")},
        _SMALL,
    ),
    Program(
        "aten-take_along_dim",
        "torch.take_along_dim(x, i, 0)",
        {**_X, "i": "int64[a,c]"},
        {"i": integer(0, "n-1")},
    ),
    _written("scatter", "torch.scatter(x, 0, i, u)"),
    _written("scatter_add", "torch.scatter_add(x, 0, i, u)"),
    _written("scatter_reduce", "torch.scatter_reduce(x, 0, i, u, 'amax')"),
    _rows("index_add", "torch.index_add(x, 0, i, u)"),
    _rows("index_copy", "torch.index_copy(x, 0, i, u)"),
    _rows("index_put", "torch.index_put(x, [i], u)"),
    Program("aten-index_fill", "torch.index_fill(x, 0, i, 1.0)", _ROWS, {"i": integer(0, "n-1")}),
    Program(
        "aten-masked_scatter",
        "torch.masked_scatter(x, m, u)",
        {**_X, "m": "bool[n,c]", "u": "float32[k]"},
        {},
    ),
    Program(
        "aten-one_hot", "torch.nn.functional.one_hot(i, 4)", {"i": "int64[k]"}, {"i": integer(0, 3)}
    ),
    Program(
        "aten-repeat_interleave",
        "torch.repeat_interleave(x, i, 0)",
        {**_X, "i": "int64[n]"},
        {"i": integer(0, 3)},
    ),
    Program(
        "aten-grid_sampler",
        "torch.grid_sampler(x, g, 0, 0, False)",
        {"x": "float32[n,2,h,w]", "g": "float32[n,a,b,2]"},
        {"g": real(-1, 1)},
        {},
        False,
    ),
    _numbers("narrow", "torch.narrow(x, 0, int(a), int(b))", a=integer(0, "n"), b=integer(0, "n")),
    _numbers("select", "torch.select(x, 0, int(a))", a=index("n")),
    _numbers("slice", "x[int(a):int(b)]", a=index("n"), b=index("n")),
    _numbers("topk", "torch.topk(x, int(a), 1)[0]", a=integer(0, "c")),
    _numbers("kthvalue", "torch.kthvalue(x, int(a), 1)[0]", a=integer(1, "c")),
    _numbers("roll", "torch.roll(x, int(a), 0)", a=integer(-3, 3)),
    _numbers("tril", "torch.tril(x, int(a))", a=integer(-3, 3)),
    _numbers("arange", "torch.arange(int(a), int(b)) + x.size(0)", a=SIZES, b=SIZES),
    _numbers("zeros", "torch.zeros([int(a), int(b)]) + x[0, 0]", a=SIZES, b=SIZES),
    _numbers("expand", "x[0, 0].expand([int(a), int(b)])", a=SIZES, b=SIZES),
    _numbers("repeat", "x.repeat([int(a), int(b)])", a=SIZES, b=SIZES),
    _numbers("reshape", "x.reshape([int(a), int(b)])", a=SIZES, b=SIZES),
    _numbers("chunk", "torch.split(x, [int(a), int(b)])[0]", a=SIZES, b=SIZES),
    _numbers("split", "torch.split(x, int(a))[int(b)]", a=integer(1, "n"), b=integer(-1, 0)),
    _numbers("tensor_split", "torch.tensor_split(x, a)[int(b)]", a=integer(1, 4), b=integer(-1, 0)),
    Program(
        "aten-tensor_split-indices",
        "torch.tensor_split(x, i)[1]",
        {**_X, "i": "int64[2]"},
        {"i": integer("-n", "n")},
    ),
    _divided("div-floor", "torch.div(a, b, rounding_mode='floor')"),
    _divided("div-trunc", "torch.div(a, b, rounding_mode='trunc')", "int32"),
    _divided("remainder", "torch.remainder(a, b)"),
    _divided("fmod", "torch.fmod(a, b)", "int32"),
)
