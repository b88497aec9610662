"""Exported modules, as they are and decomposed to Core ATen, against torch at several sizes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from compiler.errors import ImportFailed
from tests.compiler.ir.pt2.running import (
    Function,
    check,
    export,
    import_program,
)
from tests.compiler.ir.torchscript.running import Machine, agree

ROWS, IMAGES, SEQUENCES = ("float32", "n,4"), ("float32", "n,4,6,8"), ("float32", "n,5,8")
IDS = ("int64<10", "n,4")


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.down = nn.Conv2d(6, 6, 3, stride=2, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return torch.flatten(F.adaptive_avg_pool2d(F.dropout(self.down(x), 0.5, False, True), 1), 1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.layers(self.words(ids), src_key_padding_mask=mask > 8)
        return {"hidden": x, "pooled": x.mean(1)}


def edit_copy(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.add_(1).mul_(2)
    y[:, 1] = 3.0
    return y


MODELS: dict[str, tuple[Any, ...]] = {
    "mlp": (Mlp(), ROWS),
    "cnn": (Cnn(), IMAGES),
    "encoder": (Encoder(), IDS, IDS),
    "lstm": (nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True), SEQUENCES),
    "group norm": (nn.GroupNorm(2, 4), IMAGES),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), IMAGES),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), IMAGES),
    "resized": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGES),
    "writes": (edit_copy, ROWS),
    "casts": (lambda x: (x.to(torch.int32), x.double(), x.bool(), x.to(torch.bfloat16)), ROWS),
    "lists": (lambda x: x.split(2, 1) + tuple(x.unbind(1)), ROWS),
    "one hot": (lambda x: F.one_hot(x, 10), IDS),
    "distances": (lambda x, y: torch.cdist(x, y), SEQUENCES, SEQUENCES),
    "spectrum": (lambda x: torch.fft.rfft(x).abs(), ROWS),
    "constants": (lambda x: x * torch.tensor(2) + torch.tensor([1.0, 2.0, 3.0, -4.0]), ROWS),
    "sizes": (lambda x: x.reshape(x.shape[0] * 2, -1)[: x.shape[0]] * x.shape[0], ROWS),
    "floats of sizes": (lambda x: x / (x.shape[0] ** 0.5) + max(x.shape[0], 3) * 1.0, ROWS),
    "infinite": (lambda x: torch.full_like(x, -float("inf")).maximum(x), ROWS),
    "defaults": (lambda x: x.sort(0).values + x.logsumexp(1, keepdim=True) + x.var(0), ROWS),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_torch(name: str) -> None:
    module, *specs = MODELS[name]
    check(module, *specs, sizes=(3, 7))


class Structured(nn.Module):
    def forward(self, x: torch.Tensor, extra: dict[str, torch.Tensor], *rest: Any) -> Any:
        return {"a": x + extra["b"], "c": (rest[0] * 2, None, [rest[1]])}


def test_inputs_and_outputs_keep_their_names() -> None:
    x = torch.ones(2, 3)
    imported = import_program(export(Structured(), (x, {"b": x}, x, x)))
    assert [spec.name for spec in imported.inputs] == ["x", "extra_b", "rest_0", "rest_1"]
    assert [spec.name for spec in imported.outputs] == ["a", "c_0", "c_2_0"]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("last", torch.zeros(2, 4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.last[:, :2] = x[:, 2:]
        return x + self.last + self.count


@pytest.mark.parametrize("decompose", [False, True])
def test_buffers_that_change_are_state(decompose: bool) -> None:
    x = torch.randn(2, 4)
    program = export(Counter(), (x,), decompose=decompose)
    machine = Machine(
        import_program(program, inputs={"count": "float32[1]", "last": "float32[2,4]"})
    )
    assert [spec.name for spec in machine.imported.outputs] == ["output", "count", "last"]
    module = Counter()
    state = {"count": np.zeros(1, "f4"), "last": np.zeros((2, 4), "f4")}
    for _ in range(3):
        outputs = machine(x=x.numpy(), **state)
        agree([outputs["output"]], module(x))
        state = {name: outputs[name] for name in state}
    # Undeclared, every call starts from what the file has.
    (output,) = Machine(import_program(program))(x=x.numpy()).values()
    agree([output], Counter()(x))


class Branch(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a, b: a + b.sin(), lambda a, b: a - b, (x, y))


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_is_a_branch(sign: int) -> None:
    x, y = sign * torch.ones(3), torch.randn(3)
    (output,) = Machine(import_program(export(Branch(), (x, y))))(x=x.numpy(), y=y.numpy()).values()
    agree([output], Branch()(x, y))


@torch.library.custom_op("relaxd_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return twice(y)  # the line that errors quote


def test_custom_operators_are_refused_with_the_line() -> None:
    with pytest.raises(ImportFailed) as caught:
        import_program(export(Custom(), (torch.ones(2),)))
    assert caught.value.code == "import.unsupported_op"
    message = str(caught.value)
    assert "relaxd_tests::twice: a custom operator" in message
    assert "test_models.py:" in message
    assert "return twice(y)  # the line that errors quote" in message


def test_operators_are_refused_with_their_reason() -> None:
    program = export(Function(lambda x: x + torch.rand_like(x)), (torch.ones(4),))
    with pytest.raises(ImportFailed, match="random numbers differ from run to run") as caught:
        import_program(program)
    assert caught.value.code == "import.unsupported_op"


def test_a_transform_of_two_axes() -> None:
    check(lambda x: torch.fft.fftn(x, dim=(1, 2)).real, SEQUENCES, forms=(False,))


def test_results_that_only_the_caller_reads() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return nn.functional.adaptive_max_pool1d(x, 2, return_indices=True)

    check(of, ("float32", "n,3,7"), sizes=(3, 2), forms=(False,))
