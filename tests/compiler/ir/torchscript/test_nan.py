"""NaN, infinities and zeros beside torch and ONNX Runtime, at the vector unit of every kind of
processor.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import relaxd
from compiler.build import build
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import model_of, session_of
from tests.compiler.ir.torchscript.running import save_module, trace
from tests.support.geometries import NAMES, builds_for

pytestmark = pytest.mark.slow

SIZES = ((1, 2), (3, 7), (5, 16), (17, 33), (64, 17))
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 0.5, -0.5, 2.0], np.float32)


def build_at(folder: Path, geometry: str, model: bytes, suffix: str, **request: Any) -> Any:
    """The library of a model for this machine at the geometry."""
    path = folder / f"model.{suffix}"
    path.write_bytes(model)
    options = {"verify": False, "profile": False}
    wanted = CompileRequest.of(options=options, **request).to_json()
    job = CompileJob(
        model=str(path), model_name="m", output=str(folder / "out"), target="native", request=wanted
    )
    with builds_for(geometry):
        build(job)
    return relaxd.load(folder / "out")


def draws(n: int, m: int) -> Iterator[np.ndarray]:
    """Without NaN; one a row; special values alone; nothing but NaN, or an infinity."""
    draw = np.random.default_rng([n, m])
    plain = draw.normal(size=(n, m)).astype("f4")
    yield plain
    sparse = plain.copy()
    sparse[np.arange(n), draw.integers(m, size=n)] = np.nan
    yield sparse
    yield draw.choice(SPECIAL, size=(n, m))
    for value in (np.nan, np.inf, -np.inf):
        yield np.full((n, m), value, np.float32)


def flatten(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [x for v in value for x in flatten(v)]


def reductions(x: Any, y: Any) -> tuple[Any, ...]:
    return (
        torch.max(x, 1), torch.max(x, 0), torch.min(x, 1), torch.max(x), torch.min(x),
        torch.amax(x, 1), torch.amax(x, 0), torch.amin(x, (0, 1)), torch.aminmax(x, dim=1),
        torch.argmax(x, 1), torch.argmin(x, 1), torch.argmax(x, 0), torch.argmax(x),
        torch.median(x, 1), torch.median(x), torch.kthvalue(x, 2, 1)[0],
        torch.sort(x, dim=1, stable=True), torch.sort(x, dim=0, descending=True, stable=True),
        torch.topk(x, 2, 1)[0], torch.topk(x, 2, 1, largest=False)[0],
        torch.cummax(x, 1)[0], torch.cummin(x, 0)[0],
        torch.linalg.vector_norm(x, float("inf"), 1), torch.linalg.vector_norm(x, 0, 1),
        torch.logsumexp(x, 1), torch.softmax(x, 1), torch.nn.functional.adaptive_max_pool1d(x, 2),
        torch.all(x, 1), torch.any(x, 1), torch.count_nonzero(x, 1),
    )  # fmt: skip


def elementwise(x: Any, y: Any) -> tuple[Any, ...]:
    functional = torch.nn.functional
    return (
        torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y),
        torch.clamp(x, -0.5, 0.5), torch.clamp(x, min=0.0), torch.relu(x), functional.relu6(x),
        functional.threshold(x, 0.1, 20.0), functional.softshrink(x), functional.hardshrink(x),
        functional.leaky_relu(x), functional.hardtanh(x), functional.hardswish(x),
        torch.logaddexp(x, y), torch.hypot(x, y), torch.expm1(x), torch.isclose(x, y),
        x.bool(), x != 0, x != y, torch.logical_not(x), torch.logical_not(x < y),
        torch.logical_not((x < y) & (x > 0)), torch.where(~(x >= y), x, -x),
    )  # fmt: skip


def with_indices(x: Any, y: Any) -> tuple[Any, ...]:
    return torch.nn.functional.max_pool2d(x[None, None], 2, 1, 1, return_indices=True)


WEIGHT = torch.randn(16, 1, 3, 3, generator=torch.Generator().manual_seed(0))


def pools(x: Any, y: Any) -> tuple[Any, ...]:
    functional = torch.nn.functional
    lines, image = x[:, None], x[None, None]
    # Channels last, as behind every convolution.
    channels = functional.conv2d(image, WEIGHT, padding=1)
    return (
        functional.max_pool1d(lines, 2), functional.max_pool1d(lines, 3, 1, 1, ceil_mode=True),
        functional.max_pool2d(image, (1, 2)), functional.max_pool2d(image, 3, 2, 1),
        functional.max_pool3d(image[None], (1, 1, 2)), functional.max_pool1d(lines.half(), 2),
        functional.max_pool1d(lines.bfloat16(), 2).float(),
        functional.max_pool2d(channels, 3, 2, 1), functional.max_pool2d(channels, 3, 1, 1),
        functional.max_pool2d(functional.relu(channels), 3, 1, 1, ceil_mode=True),
        functional.adaptive_max_pool2d(channels, 1), torch.amax(channels, (2, 3)),
        torch.amin(channels, 1), torch.amax(x.half(), 1),
    )  # fmt: skip


@pytest.mark.parametrize("geometry", NAMES)
@pytest.mark.parametrize("function", [reductions, elementwise, with_indices, pools])
def test_torchscript_keeps_nan(function: Any, geometry: str, tmp_path: Path) -> None:
    def forward(x: Any, y: Any) -> Any:
        return tuple(flatten(function(x, y)))

    script = trace(forward, torch.randn(6, 9), torch.randn(6, 9))
    names = [argument.name for argument in script._c._get_method("forward").schema.arguments[1:]]
    inputs = dict.fromkeys(names, "float32[n,m]")
    model = build_at(
        tmp_path, geometry, save_module(script), "pt", inputs=inputs, dims={"m": (2, 64)}
    )
    for size in SIZES:
        y = np.random.default_rng(7).choice(SPECIAL, size=size)
        for x in draws(*size):
            feed = dict(zip(names, (x, y), strict=True))
            with torch.inference_mode():
                wanted = script(*(torch.from_numpy(value.copy()) for value in feed.values()))
            _agree(list(model.run(feed).values()), [value.numpy() for value in wanted])


def _agree(outputs: list[Any], wanted: list[Any]) -> None:
    for index, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-5, 1e-6, equal_nan=True, err_msg=str(index))


def negations() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["truth"], to=TensorProto.BOOL),
        node("Less", ["x", "y"], ["less"]),
        node("Not", ["less"], ["not_less"]),
        node("Equal", ["x", "y"], ["equal"]),
        node("Not", ["equal"], ["not_equal"]),
        node("Greater", ["x", "y"], ["greater"]),
        node("Or", ["less", "greater"], ["either"]),
        node("Not", ["either"], ["neither"]),
        node("Where", ["not_less", "x", "y"], ["chosen"]),
        node("NonZero", ["x"], ["places"]),
        node("ArgMax", ["x"], ["greatest"], axis=1),
    ]
    outputs = ["truth", "not_less", "not_equal", "neither", "chosen", "places", "greatest"]
    return model_of(nodes, dict.fromkeys("xy", "float32[n,m]"), outputs=outputs)


@pytest.mark.parametrize("geometry", NAMES)
def test_onnx_compares_as_onnxruntime(geometry: str, tmp_path: Path) -> None:
    onnx_model = negations()
    session = session_of(onnx_model)
    model = build_at(tmp_path, geometry, onnx_model.SerializeToString(), "onnx")
    for size in SIZES:
        y = np.random.default_rng(7).choice(SPECIAL, size=size)
        for x in draws(*size):
            feed = {"x": x, "y": y}
            _agree(list(model.run(feed).values()), session.run(None, feed))
