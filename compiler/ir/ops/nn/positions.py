"""The source position of each position of a resampled axis, by the operators' rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.values import Tensor
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


class Coordinates(StrEnum):
    """How a position in the result maps to one in the input."""

    HALF_PIXEL = "half_pixel"
    HALF_PIXEL_SYMMETRIC = "half_pixel_symmetric"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"
    TF_HALF_PIXEL_FOR_NN = "tf_half_pixel_for_nn"
    TF_CROP_AND_RESIZE = "tf_crop_and_resize"


@dataclass(frozen=True)
class Along:
    """One axis to resample from `have` to `want` elements.

    scale: result over input, where given as a number; else it is element `lane` of the run-time
    scales, else want / have.
    half_up: whether `want` is have * scale rounded half up, and may exceed it, not rounded down.
    """

    axis: int
    have: Extent
    want: Extent
    scale: float | None = None
    lane: int = 0
    half_up: bool = False


@dataclass(frozen=True)
class RunTimeInputs:
    """Run-time float32 vectors: a scale for each lane, and regions of interest as all starts, then
    all ends.
    """

    scales: Tensor | None = None
    roi: Tensor | None = None
    lanes: int = 0

    @property
    def tensors(self) -> list[Tensor]:
        """Those that there are."""
        return [tensor for tensor in (self.scales, self.roi) if tensor is not None]

    def by_name(self, tensors: Sequence[te.Tensor]) -> dict[str, te.Tensor]:
        """The TE tensors of `tensors` as `scales` and `roi`."""
        names = [
            name
            for name, tensor in (("scales", self.scales), ("roi", self.roi))
            if tensor is not None
        ]
        return dict(zip(names, tensors, strict=True))


def as_float(value: Extent) -> Any:
    """An extent as a float32 expression."""
    return ex.prim(value, "float32")


def number(value: float) -> Any:
    """A float32 constant."""
    return tirx.const(value, "float32")


def scale_of(along: Along, run_time: dict[str, te.Tensor]) -> Any:
    """Result over input along the axis, as float32; 1 where either has no elements: TVM divides
    constants.
    """
    if along.scale is not None or 0 in (ex.plain(along.want), ex.plain(along.have)):
        return number(along.scale or 1)
    return (
        run_time["scales"](along.lane)
        if "scales" in run_time
        else as_float(along.want) / as_float(along.have)
    )


def _length(along: Along, run_time: dict[str, te.Tensor]) -> Any:
    """Extent of the result before it was rounded."""
    exact = along.scale is None and "scales" not in run_time
    return as_float(along.want) if exact else scale_of(along, run_time) * as_float(along.have)


def source(
    along: Along,
    run_time: dict[str, te.Tensor],
    lanes: int,
    coordinates: Coordinates,
    position: Any,
) -> Any:
    """Where in the input, as float32, the result's `position` comes from."""
    o, half, one = position.astype("float32"), number(0.5), number(1)
    have, scale, length = as_float(along.have), scale_of(along, run_time), _length(along, run_time)
    centred = (o + half) / scale - half
    span = tirx.max(length - one, number(1e-30))
    match coordinates:
        case Coordinates.HALF_PIXEL:
            return centred
        case Coordinates.PYTORCH_HALF_PIXEL:
            return tirx.Select(as_float(along.want) > one, centred, number(0))
        case Coordinates.ASYMMETRIC:
            return o / scale
        case Coordinates.TF_HALF_PIXEL_FOR_NN:
            return (o + half) / scale
        case Coordinates.ALIGN_CORNERS:
            return tirx.Select(tirx.EQ(length, one), number(0), o * (have - one) / span)
        case Coordinates.HALF_PIXEL_SYMMETRIC:
            return have / number(2) * (one - as_float(along.want) / length) + centred
        case Coordinates.TF_CROP_AND_RESIZE:
            start, end = run_time["roi"](along.lane), run_time["roi"](along.lane + lanes)
            many = start * (have - one) + o * (end - start) * (have - one) / span
            return tirx.Select(length > one, many, half * (start + end) * (have - one))
