"""Gradients by name against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check, script

FLOATS = "float32"
aten = torch.ops.aten


def test_softmax() -> None:
    def of(grad: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            aten._softmax_backward_data(grad, x.softmax(1), 1, torch.float32),
            aten._log_softmax_backward_data(grad, x.log_softmax(0), 0, torch.float32),
        )

    check(of, (FLOATS, "n,5"), (FLOATS, "n,5"))


def test_dropout() -> None:
    check(
        lambda grad, mask: aten.native_dropout_backward(grad, mask, 1.25),
        (FLOATS, "n,3"),
        ("bool", "n,3"),
    )


class LayerNorm(torch.nn.Module):
    """All gradients of a layer norm with weights, and the first of one without: in a script, as
    torch does not trace a list of flags.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = torch.linspace(0.5, 2, 6), torch.linspace(-1, 1, 6)

    def forward(
        self, grad: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        _, mean, rstd = torch.native_layer_norm(x, [6], self.weight, self.bias, 1e-5)
        dx, dweight, dbias = torch.ops.aten.native_layer_norm_backward(
            grad, x, [6], mean, rstd, self.weight, self.bias, [True, True, True]
        )
        alone, _, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, [6], mean, rstd, None, None, [True, False, False]
        )
        return dx, dweight, dbias, alone


def test_layer_norm() -> None:
    check(script(LayerNorm()), (FLOATS, "n,2,6"), (FLOATS, "n,2,6"))


def test_max_pool() -> None:
    def of(x: torch.Tensor) -> torch.Tensor:
        pooled, positions = torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
        return aten.max_pool2d_with_indices_backward(
            pooled + 1, x, [3, 3], [2, 2], [1, 1], [1, 1], False, positions
        )

    check(of, (FLOATS, "2,3,n+2,7"))
