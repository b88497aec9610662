"""Quantized programs as torch.ao (PT2E) and torchao write them: torch's results, and integers that
stay integers. torchao's operators are declared here by the reference's own arithmetic.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

from compiler.verify.reference.exported import ExportedProgram
from compiler.verify.reference.torch_quantized import operators
from tests.compiler.ir.pt2.running import check, export, save
from tests.compiler.ir.torchscript.running import agree

AO: Any = torch.ops.quantized_decomposed
BYTES = (-128, 127, torch.int8)
UNSIGNED = (0, 255, torch.uint8)
_SCHEMAS = {
    "quantize_affine": "(Tensor input, int[] block_size, Tensor scale, Tensor? zero_point, "
    "ScalarType output_dtype, int? quant_min=None, int? quant_max=None) -> Tensor",
    "dequantize_affine": "(Tensor input, int[] block_size, Tensor scale, Tensor? zero_point, "
    "ScalarType input_dtype, int? quant_min=None, int? quant_max=None, *, "
    "ScalarType output_dtype=float) -> Tensor",
    "choose_qparams_affine": "(Tensor input, str mapping_type, int[] block_size, "
    "ScalarType target_dtype, int? quant_min=None, int? quant_max=None, float? eps=None, "
    "ScalarType? scale_dtype=None, ScalarType? zero_point_dtype=None, bool keepdim=False) "
    "-> (Tensor, Tensor)",
}


@pytest.fixture(scope="module")
def torchao() -> Iterator[Any]:
    library = torch.library.Library("torchao", "DEF")
    for name, schema in _SCHEMAS.items():
        function = operators(torch, wide=False)[f"torch.ops.torchao.{name}"]
        library.define(name + schema)
        words = [word.strip("*, ").split(" ")[-1] for word in schema.split(") ->")[0].split(",")]
        words = [word.partition("=")[0] for word in words if word]

        def call(*args: Any, _function: Any = function, _words: Any = words, **named: Any) -> Any:
            return _function(**dict(zip(_words, args, strict=False)), **named)

        library.impl(name, call, "CompositeExplicitAutograd")
    yield torch.ops.torchao
    library._destroy()


def _quantized(*shape: int, low: int = -128, high: int = 128) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(
        torch.int8
    )


class PerChannel(nn.Module):
    """A linear layer of static activations, as PT2E writes it for x86."""

    def __init__(self, zero: int) -> None:
        super().__init__()
        self.zero = zero
        self.register_buffer("weight", _quantized(16, 12))
        self.register_buffer("scales", torch.rand(16) * 0.02 + 0.01)
        self.register_buffer("zeros", torch.zeros(16, dtype=torch.int64))
        self.register_buffer("bias", torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = AO.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *BYTES)
        number = AO.quantize_per_tensor(x, 0.03, self.zero, *UNSIGNED)
        real = AO.dequantize_per_tensor(number, 0.03, self.zero, *UNSIGNED)
        return nn.functional.linear(real, weight, self.bias).relu()


class PerChannelConv(nn.Module):
    """A convolution whose border has a zero point."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", _quantized(8, 3, 3, 3))
        self.register_buffer("scales", torch.rand(8) * 0.02 + 0.01)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = AO.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *BYTES)
        number = AO.quantize_per_tensor(x, 0.03, 100, *UNSIGNED)
        real = AO.dequantize_per_tensor(number, 0.03, 100, *UNSIGNED)
        return nn.functional.conv2d(real, weight, padding=1)


class Groups(nn.Module):
    """Weights alone, of 4 bits with a scale for each 32 of them."""

    def __init__(self, low: int, zero: int) -> None:
        super().__init__()
        self.low, self.high = low, low + 15
        self.register_buffer("weight", _quantized(64, 96, low=low, high=low + 16))
        self.register_buffer("scales", torch.rand(64, 3) * 0.1 + 0.01)
        self.register_buffer("zeros", torch.full((64, 3), zero, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.ops.torchao.dequantize_affine(
            self.weight, [1, 32], self.scales, self.zeros, torch.int8, self.low, self.high
        )
        return nn.functional.linear(x, weight)


class CastWeight(nn.Module):
    """Weights alone, of 8 bits: torchao scales the result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", _quantized(64, 96))
        self.register_buffer("scales", torch.rand(64) * 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, self.weight.t().to(torch.float32)) * self.scales


class Dynamic(nn.Module):
    """Rows that are quantized as they come, multiplied as integers."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self.mapping = mapping
        self.register_buffer("weight", _quantized(64, 96))

    def forward(self, x: torch.Tensor) -> Any:
        ops = torch.ops.torchao
        scale, zero = ops.choose_qparams_affine(
            x, self.mapping, [1, 96], torch.int8, -128, 127, 1e-7, torch.float32, torch.int8, True
        )
        number = ops.quantize_affine(x, [1, 96], scale, zero, torch.int8, -128, 127)
        real = ops.dequantize_affine(number, [1, 96], scale, zero, torch.int8, -128, 127)
        return torch._int_mm(number, self.weight.t()), scale, zero, real


def _text(imported: Any) -> str:
    return str(imported.module.script())


@pytest.mark.parametrize("zero", [0, 120])
def test_a_static_linear_layer_multiplies_integers(zero: int) -> None:
    for imported in check(PerChannel(zero), ("float32", "n,12")):
        assert imported.quantized
        assert "rescale" in _text(imported)


def test_a_static_convolution_multiplies_integers() -> None:
    for imported in check(PerChannelConv(), ("float32", "n,3,7,5")):
        assert "rescale" in _text(imported)


@pytest.mark.usefixtures("torchao")
@pytest.mark.parametrize("zero", [0, 3])
def test_weights_of_four_bits_stay_in_groups(zero: int) -> None:
    for imported in check(Groups(-8, zero), ("float32", "n,96")):
        assert "nbits_product" in _text(imported)
        assert not imported.quantized


def test_weights_of_eight_bits_stay_bytes() -> None:
    for imported in check(CastWeight(), ("float32", "n,96")):
        assert "bytes_product" in _text(imported)


@pytest.mark.usefixtures("torchao")
@pytest.mark.parametrize("mapping", ["SYMMETRIC", "ASYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"])
def test_rows_get_grids_of_their_own(mapping: str) -> None:
    check(Dynamic(mapping), ("float32", "n,96"))


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_tensor_gets_a_grid_of_its_own(symmetric: bool) -> None:
    choose = AO.choose_qparams_symmetric if symmetric else AO.choose_qparams
    form = (-128, 127, torch.int8) if symmetric else UNSIGNED

    def function(x: torch.Tensor) -> Any:
        scale, zero = choose.tensor(x, *form[:2], 1e-7, form[2])
        number = AO.quantize_per_tensor.tensor(x, scale, zero, *form)
        return scale, zero, number, AO.dequantize_per_tensor.tensor(number, scale, zero, *form)

    check(function, ("float32", "n,5"))


def test_tokens() -> None:
    def function(x: torch.Tensor) -> Any:
        scale, zero = AO.choose_qparams_per_token_asymmetric(x, torch.int8)
        number = AO.quantize_per_token(x, scale, zero, *BYTES)
        real = AO.dequantize_per_token(number, scale, zero, *BYTES, torch.float32)
        return number, real

    check(function, ("float32", "n,6"))


def test_ranges_below_the_dtypes_groups_and_channels() -> None:
    scales, zeros = torch.tensor([0.1, 0.5, 2.0]), torch.tensor([1, -2, 0])
    groups, steps = _quantized(4, 64), torch.rand(4, 2)

    def function(x: torch.Tensor) -> Any:
        number = AO.quantize_per_channel(x, scales, zeros, 1, -8, 7, torch.int8)
        real = AO.dequantize_per_channel(number, scales, None, 1, -8, 7, torch.int8)
        grouped = AO.dequantize_per_channel_group(
            groups, steps, None, -128, 127, torch.int8, 32, torch.float32
        )
        return number, real, grouped[1, 30:33] + x

    check(function, ("float32", "n,3"))


def test_halves_round_to_even_and_ends_saturate() -> None:
    values = torch.tensor([0.5, 1.5, 2.5, -0.5, 1e9, -1e9, float("inf"), 126.5, 127.5])

    def function(x: torch.Tensor) -> Any:
        return AO.quantize_per_tensor(x + values, 1.0, 0, *BYTES)

    check(function, ("float32<1", "n,1"))


@pytest.mark.usefixtures("torchao")
@pytest.mark.parametrize(
    "module", [PerChannel(120), PerChannelConv(), Groups(-8, 3), Dynamic("ASYMMETRIC")]
)
def test_references_compute_as_torch_does(module: nn.Module, tmp_path: Path) -> None:
    shape = {"PerChannel": (2, 12), "PerChannelConv": (2, 3, 7, 5)}.get(
        type(module).__name__, (2, 96)
    )
    x = torch.randn(shape)
    path = save(export(module, (x,)), tmp_path / "m.pt2")
    feeds = {"x": x.numpy()}
    agree(list(ExportedProgram(str(path)).run(feeds, {}).values()), module(x), 1e-6)
    for value in ExportedProgram(str(path), wide=True).run(feeds, {}).values():
        assert value.dtype in (np.float64, np.int32, np.int8)
