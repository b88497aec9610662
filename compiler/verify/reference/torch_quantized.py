"""The operators of quantized `.pt2` programs in torch's arithmetic, for references: torch's own
take float32 alone, and torchao's are a package of its own. All arguments are given by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_AO, _TORCHAO = "torch.ops.quantized_decomposed.", "torch.ops.torchao."


def operators(torch: Any, wide: bool) -> Mapping[str, Callable[..., Any]]:
    """The functions by their targets without the overload. wide: floats are float64."""
    functions = _Operators(torch, torch.float64 if wide else torch.float32)
    named = (*(name for name in vars(_Operators) if not name.startswith("_")),)
    return {
        f"{_TORCHAO if name.endswith('affine') else _AO}{name}": getattr(functions, name)
        for name in named
    }


class _Operators:
    def __init__(self, torch: Any, floats: Any) -> None:
        self._torch, self._floats = torch, floats

    def _quantize(self, x: Any, grid: tuple[Any, Any], limits: tuple[int, int], dtype: Any) -> Any:
        scale, zero = grid
        number = self._torch.round(x.to(self._floats) * (1.0 / scale)) + zero
        return self._torch.clamp(number, *limits).to(dtype)

    def _real(self, integers: Any, grid: tuple[Any, Any], dtype: Any) -> Any:
        scale, zero = grid
        return ((integers.to(self._floats) - zero) * scale).to(dtype or self._floats)

    def quantize_per_tensor(
        self, input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any
    ) -> Any:
        return self._quantize(input, (scale, zero_point), (quant_min, quant_max), dtype)

    def dequantize_per_tensor(
        self, input: Any, scale: Any, zero_point: Any, out_dtype: Any = None, **_: Any
    ) -> Any:
        return self._real(input, (scale, zero_point), out_dtype)

    def quantize_per_channel(
        self, input: Any, scales: Any, zero_points: Any, axis: int, **rest: Any
    ) -> Any:
        grid = _along(input, axis, scales), _along(input, axis, zero_points)
        return self._quantize(input, grid, _limits(rest), rest["dtype"])

    def dequantize_per_channel(
        self, input: Any, scales: Any, zero_points: Any, axis: int, out_dtype: Any = None, **_: Any
    ) -> Any:
        zero = 0 if zero_points is None else _along(input, axis, zero_points)
        return self._real(input, (_along(input, axis, scales), zero), out_dtype)

    def dequantize_per_channel_group(
        self, input: Any, scales: Any, zero_points: Any, group_size: int, **rest: Any
    ) -> Any:
        zero = 0 if zero_points is None else zero_points.reshape(-1, 1)
        grid, grouped = (scales.reshape(-1, 1), zero), input.reshape(-1, group_size)
        return self._real(grouped, grid, rest.get("output_dtype")).reshape(input.shape)

    def quantize_per_token(self, input: Any, scales: Any, zero_points: Any, **rest: Any) -> Any:
        number = input.to(self._floats).mul(1.0 / scales).add(zero_points).round()
        return number.clamp(*_limits(rest)).to(rest["dtype"])

    def dequantize_per_token(self, input: Any, scales: Any, zero_points: Any, **rest: Any) -> Any:
        return self._real(input, (scales, zero_points), rest.get("output_dtype"))

    def choose_qparams(self, input: Any, eps: float, **rest: Any) -> Any:
        low, high = _limits(rest)
        least, most = self._ends(input, list(range(input.dim())), False)
        scale = ((most - least) / (high - low)).clamp(min=eps)
        zero = (low - self._torch.round(least / scale)).clamp(low, high)
        return scale.double().reshape(1), zero.long().reshape(1)

    def choose_qparams_symmetric(self, input: Any, eps: float, **rest: Any) -> Any:
        low, high = _limits(rest)
        least, most = self._ends(input, list(range(input.dim())), False)
        scale = (self._torch.maximum(-least, most) / ((high - low) / 2)).clamp(min=eps)
        zero = 128 if rest["dtype"] is self._torch.uint8 else 0
        return scale.double().reshape(1), self._torch.full((1,), zero)

    def choose_qparams_per_token_asymmetric(self, input: Any, dtype: Any) -> Any:
        least, most = self._ends(input, [-1], True)
        scale = ((most - least) / 255).clamp(min=self._torch.finfo(self._torch.float32).eps)
        down, up = least / scale, most / scale
        zero = self._torch.where(-128 + down + 127 + up > 0, -128 - down, 127 - up)
        return scale.double(), zero.clamp(-128, 127).round().long()

    def quantize_affine(
        self, input: Any, block_size: Sequence[int], scale: Any, zero_point: Any, **rest: Any
    ) -> Any:
        shape, after, _ = _cut(block_size, input.shape)
        grid = scale.reshape(after), 0 if zero_point is None else zero_point.reshape(after)
        number = self._quantize(input.reshape(shape), grid, _limits(rest), rest["output_dtype"])
        return number.reshape(input.shape)

    def dequantize_affine(
        self, input: Any, block_size: Sequence[int], scale: Any, zero_point: Any, **rest: Any
    ) -> Any:
        shape, after, _ = _cut(block_size, input.shape)
        zero = 0 if zero_point is None else zero_point.reshape(after).to(self._floats)
        grid = scale.reshape(after), zero
        real = self._real(input.reshape(shape), grid, rest.get("output_dtype"))
        return real.reshape(input.shape)

    def choose_qparams_affine(
        self, input: Any, mapping_type: str, block_size: Sequence[int], **rest: Any
    ) -> Any:
        low, high = _limits(rest)
        shape, _, axes = _cut(block_size, input.shape)
        least, most = self._ends(input.reshape(shape), axes, rest.get("keepdim", False))
        steps = {
            "ASYMMETRIC": (most - least) / (high - low),
            "SYMMETRIC": self._torch.maximum(-least, most) / ((high - low) / 2),
        }
        scale = steps.get(mapping_type, self._torch.maximum(least / low, most / high))
        tiny = self._torch.finfo(input.dtype).smallest_normal
        scale = scale.clamp(min=tiny if rest.get("eps") is None else rest["eps"])
        zero = self._torch.full_like(scale, int((high + low + 1) / 2))
        if mapping_type == "ASYMMETRIC":
            zero = (low - self._torch.round(least / scale)).clamp(low, high)
        if rest.get("keepdim"):
            counts = [n // size for n, size in zip(input.shape, block_size, strict=True)]
            scale, zero = scale.reshape(counts), zero.reshape(counts)
        kinds = rest.get("scale_dtype"), rest.get("zero_point_dtype")
        return scale.to(kinds[0] or input.dtype), zero.to(kinds[1] or self._torch.int32)

    def _ends(self, x: Any, axes: Sequence[int], keeps: bool) -> tuple[Any, Any]:
        """The least value, at most 0, and the greatest one, at least 0."""
        x = x.to(self._floats)
        least, most = (
            of(x, dim=axes, keepdim=keeps) for of in (self._torch.amin, self._torch.amax)
        )
        return least.clamp(max=0), most.clamp(min=0)


def _limits(arguments: Mapping[str, Any]) -> tuple[int, int]:
    return arguments["quant_min"], arguments["quant_max"]


def _along(x: Any, axis: int, values: Any) -> Any:
    return values.reshape([-1 if position == axis % x.dim() else 1 for position in range(x.dim())])


def _cut(sizes: Sequence[int], shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The shape with an axis of several blocks as two, that with 1 for what is reduced, and the
    reduced axes.
    """
    cut: list[int] = []
    axes: list[int] = []
    for size, extent in zip(sizes, shape, strict=True):
        if size not in (1, extent):
            cut.append(extent // size)
            extent = size
        if size != 1:
            axes.append(len(cut))
        cut.append(extent)
    return cut, [1 if axis in axes else n for axis, n in enumerate(cut)], axes
