"""Tensors without elements, by their static shape and by dims that a run finds to be 0, beside
torch.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.compiler.ir.torchscript.running import Compiled, agree, arguments, run, trace

pytestmark = pytest.mark.slow

Function = Callable[[Any], Any]


def _channels(x: Any, count: int = 4) -> Any:
    return x[:, None].expand(-1, count, -1).contiguous()


POINTWISE: dict[str, Function] = {
    "add": lambda x: x + 1, "relu": F.relu, "gelu": F.gelu, "maximum": lambda x: x.maximum(-x),
    "where": lambda x: torch.where(x > 0, x, -x), "integers": lambda x: x.int() // 2,
    "both": lambda x: (x > 0) & (x < 1), "bucketize": lambda x: torch.bucketize(x, x.new_ones(2)),
}  # fmt: skip
REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(1)), "prod": lambda x: (x.prod(0), x.prod(1)),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(1)), "var": lambda x: (x.var(0), x.std(1)),
    "all": lambda x: ((x > 0).all(1), (x > 0).any(0)), "norm": lambda x: x.norm(2, 1),
    "logsumexp": lambda x: x.logsumexp(1), "cumsum": lambda x: (x.cumsum(1), x.cumprod(0)),
    "amax": lambda x: F.pad(x, (1, 0)).amax(1), "argmax": lambda x: F.pad(x, (1, 0)).argmax(1),
    "softmax": lambda x: (F.softmax(x, 0), F.log_softmax(x, 1)), "sort": lambda x: x.sort(1)[0],
    "median": lambda x: F.pad(x, (1, 0)).median(1)[0], "topk": lambda x: x.topk(0, 1)[0],
}  # fmt: skip
SHAPES: dict[str, Function] = {
    "transpose": lambda x: x.transpose(0, 1).contiguous(), "flatten": lambda x: x.flatten(),
    "reshape": lambda x: x.reshape(x.size(1), x.size(0)), "cat": lambda x: torch.cat([x, x], 1),
    "cat_rows": lambda x: torch.cat([x, x.new_ones(2, x.size(1))]), "stack": lambda x: x[:, None],
    "slice": lambda x: (x[:, :2], x[1:]), "flip": lambda x: x.flip(1), "roll": lambda x: x.roll(1),
    "pad": lambda x: F.pad(x, (1, 1)), "repeat": lambda x: (x.repeat(2, 3), x.repeat(0, 1)),
    "interleave": lambda x: x.repeat_interleave(2, 1), "tril": torch.tril,
    "unfold": lambda x: F.pad(x, (2, 0)).unfold(1, 2, 1), "diagonal": lambda x: x.diagonal(),
    "nonzero": torch.nonzero, "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
    "embedding": lambda x: F.embedding((x > 0).long(), torch.ones(3, 5)),
    "index": lambda x: x.index_select(0, torch.zeros(0, dtype=torch.long)),
}  # fmt: skip
MATMULS: dict[str, Function] = {
    "matmul": lambda x: x @ x.new_ones(x.size(1), 3), "inner": lambda x: (x @ x.T, x.T @ x),
    "outer": lambda x: torch.outer(x.flatten(), x.flatten()),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "cdist": lambda x: torch.cdist(x, x),
    "conv": lambda x: F.conv1d(_channels(x, 2), torch.ones(3, 2, 1)),
}  # fmt: skip
IMAGES: dict[str, Function] = {
    "avg_pool": lambda x: F.avg_pool1d(x[:, None], 1),
    "max_pool": lambda x: F.max_pool1d(x[:, None], 1),
    "adaptive": lambda x: F.adaptive_avg_pool1d(_channels(x), 1),
    "nearest": lambda x: F.interpolate(x[:, None], scale_factor=2.0),
    "linear": lambda x: F.interpolate(x[:, None], scale_factor=2.0, mode="linear"),
    "batch_norm": lambda x: F.batch_norm(_channels(x), torch.zeros(4), torch.ones(4)),
    "group_norm": lambda x: F.group_norm(_channels(x), 2),
    "instance_norm": lambda x: F.instance_norm(_channels(x)),
    "layer_norm": lambda x: F.layer_norm(x.T, (x.size(0),)),
    "layer_norm_rows": lambda x: F.layer_norm(x[..., None].expand(-1, -1, 4), (4,)),
    "glu": lambda x: F.glu(torch.cat([x, x], 1), 1),
}
TABLE = {**POINTWISE, **REDUCTIONS, **SHAPES, **MATMULS, **IMAGES}


def _wanted(module: Any, x: torch.Tensor) -> Any:
    """Run torch; None where it refuses the shape."""
    try:
        return run(module, x)
    except RuntimeError:
        return None


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(
    ("axes", "shapes"),
    [("n,m", ((0, 3), (3, 0), (0, 0), (3, 3))), ("0,m", ((0, 3), (0, 4))), ("n,0", ((3, 0),))],
)
def test_no_elements(name: str, axes: str, shapes: tuple[tuple[int, int], ...]) -> None:
    example = torch.randn(3, 3) if axes == "n,m" else torch.randn(*shapes[0])
    try:
        module = trace(TABLE[name], example)
    except RuntimeError:
        pytest.skip("torch refuses the static shape")
    wanted = {shape: _wanted(module, torch.zeros(shape)) for shape in shapes}
    (argument,) = arguments(module)
    dims = {axis: (0, 9) for axis in axes.split(",") if axis.isalpha()}
    call = Compiled(module, {argument: f"float32[{axes}]"}, dims=dims)
    for shape, expected in wanted.items():
        if expected is not None:
            agree(list(call(**{argument: torch.zeros(shape).numpy()}).values()), expected)
