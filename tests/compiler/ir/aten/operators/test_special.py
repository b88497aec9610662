"""Less common elementwise functions against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_functions() -> None:
    check(
        lambda x: (
            torch.erfc(x),
            torch.sinc(x),
            torch.hypot(x, x + 1),
            torch.heaviside(x, torch.tensor([1.0])),
            torch.logaddexp(x, x * 2),
            torch.logaddexp2(x, x),
            torch.xlogy(x.relu(), x.abs()),
            torch.deg2rad(x),
            torch.rad2deg(x),
            (x / 0.0001).exp().isposinf(),
            x.log().isneginf(),
        ),
        (FLOATS, "n,4"),
    )


def test_nan() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        odd = torch.where(x > 0, x, float("nan"))
        return (
            torch.maximum(odd, x),
            torch.minimum(x, odd),
            torch.fmax(odd, x),
            torch.fmin(x, odd),
            odd.clamp(0, 1),
            torch.relu(odd).nan_to_num(3.0) * 0,
            torch.nansum(odd),
            torch.nanmean(odd, 0),
        )

    check(of, (FLOATS, "n,3"))


def test_nan_is_unequal_to_everything() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        odd = torch.where(x > 0, x, float("nan"))
        return odd != odd, odd != x, odd.ne(0.0), odd.bool(), odd == odd

    check(of, (FLOATS, "n,3"))
