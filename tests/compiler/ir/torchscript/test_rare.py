"""Operators that layers and tracing seldom leave behind: aliases, forms that only scripts keep,
internal ones.
"""

import torch
from torch import nn
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check, script

FLOATS = "float32"
aten = torch.ops.aten


def test_aliases_of_functions() -> None:
    names = (
        "absolute arctan arcsinh fix negative sgn positive special_expit special_erf "
        "special_erfc special_sinc"
    )

    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inner, wide = torch.tanh(x) * 0.9, x.abs() + 1
        return (
            *(getattr(aten, name)(x) for name in names.split()),
            *(getattr(aten, name)(inner) for name in ("arccos", "arcsin", "arctanh", "logit")),
            *(getattr(aten, name)(wide) for name in ("acosh", "arccosh")),
            *(
                getattr(aten, name)(x, wide)
                for name in (
                    "arctan2",
                    "divide",
                    "multiply",
                    "subtract",
                    "true_divide",
                    "float_power",
                )
            ),
            *(
                getattr(aten, name)(x, 0.5)
                for name in (
                    "clamp_max",
                    "greater",
                    "greater_equal",
                    "less",
                    "less_equal",
                    "not_equal",
                )
            ),
            aten.clip(x, -0.5, 0.5),
            torch.isclose(x, x + 1e-9),
        )

    check(of, (FLOATS, "n,3"))


def test_bits() -> None:
    def of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shifted = [
            getattr(torch, f"bitwise_{name}_shift")(x, y.abs()) for name in ("left", "right")
        ]
        return (
            *(getattr(torch, f"bitwise_{name}")(x, y) for name in ("and", "or", "xor")),
            *shifted,
        )

    check(of, ("int64", "n,3"), ("int64", "n,3"))


def test_activations_and_norms_by_their_internal_names() -> None:
    def of(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            aten._softmax(x, 1, False),
            aten._log_softmax(x, 1, False),
            torch.special.softmax(x, 1),
            torch.special.log_softmax(x, 1),
            torch.prelu(x, weight),
            F.tanhshrink(x),
            torch.logsumexp(x, 1),
            torch.amax(x, 1),
            torch.amin(x, 0),
            torch.cummin(x, 1)[0],
            *aten.native_layer_norm(x, [3], weight, None, 1e-5)[:1],
            aten._weight_norm(x, x[:, :1] + 4, 0),
        )

    check(of, (FLOATS, "n,3"), (FLOATS, "3"))


def test_views_by_their_rarer_names() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            aten._unsafe_view(x, [-1, 6]),
            aten.alias(x),
            aten.lift_fresh(x),
            aten.detach_copy(x),
            torch.atleast_1d(x.sum()),
            torch.swapaxes(x, 0, 2),
            torch.swapdims(x, 0, 1),
            torch.moveaxis(x, 0, -1),
            x.reshape_as(x.transpose(0, 1)),
            x.view_as(x + 1),
            torch.narrow_copy(x, 1, 1, 1),
            *aten.unsafe_split(x, 1, 1),
            *aten.unsafe_split_with_sizes(x, [1, 2], 2),
            *torch.broadcast_tensors(x, x[:1]),
            torch.concat([x, x], 1),
            torch.concatenate([x, x], 0),
            torch.row_stack([x, x]),
        )

    check(of, (FLOATS, "n,2,3"))


def test_paddings_by_name() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat, deep = x[0], x.unsqueeze(0)
        return (
            aten.constant_pad_nd(x, [1, 0, 2, 1], 0.5),
            *(
                getattr(aten, f"{kind}_pad1d")(flat, [1, 2])
                for kind in ("reflection", "replication")
            ),
            *(
                getattr(aten, f"{kind}_pad2d")(x, [1, 2, 0, 1])
                for kind in ("reflection", "replication")
            ),
            *(
                getattr(aten, f"{kind}_pad3d")(deep, [1, 0, 1, 1, 0, 1])
                for kind in ("reflection", "replication")
            ),
        )

    check(of, (FLOATS, "2,3,n,4"), sizes=(4, 7))


def test_matmuls() -> None:
    def of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = x[0], y[0]
        return (
            torch.addbmm(torch.ones(3, 4), x, y),
            torch.addmv(left[:, 0], left, right[:, 1]),
            torch.dot(left[0], right[:, 0]),
            torch.ger(left[0], right[0]),
            torch.mv(left, right[:, 0]),
            torch.linalg.matmul(x, y),
            torch.linalg.multi_dot([left, right, right.t()]),
            torch.det(torch.eye(3) * 2 + left @ left.t() * 0.1),
        )

    check(of, (FLOATS, "n,3,n+1"), (FLOATS, "n,n+1,4"))


class Layers(nn.Module):
    """Convolutions, pooling, resizing and layers that only train, as scripts have them."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv2d(3, 4, 3, padding="same")
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.line = nn.ConvTranspose1d(3, 2, 3)
        self.bilinear = nn.Bilinear(3, 3, 2)
        self.thin = nn.Sequential(nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.5))

    def forward(
        self, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        row = x[:, :, 0]
        last = x[:, :, 0, 0]
        best, _ = F.adaptive_max_pool1d_with_indices(row, 2)
        sized = F.interpolate(row, size=[7], mode="linear") + F.interpolate(
            row, size=[7], mode="nearest"
        )
        return (
            self.up(self.plane(x)),
            self.line(row),
            self.bilinear(last, last),
            best,
            sized,
            self.thin(x),
        )


def test_layers_of_scripts() -> None:
    torch.manual_seed(0)
    check(script(Layers()), (FLOATS, "n,3,5,n+3"), sizes=(1, 2, 5))


class Words(nn.Module):
    """Strings, lists and dicts, all of which are gone after the import."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, bool]:
        name = "-".join(["Alpha", "beta"]).upper().replace("-", " ").strip().lower()
        sizes = [x.size(0), 3, 2]
        sizes.insert(1, 7)
        sizes.reverse()
        taken = sizes.pop()
        table = {"a": 1, "b": 2}
        table.setdefault("c", 3)
        total = 0
        for key, value in table.items():
            if key in table.keys() and name.startswith("alpha") and not name.endswith("x"):  # noqa: SIM118
                total += value
        for value in table.values():
            total += value
        missing = table.get("z", 5)
        copied = list(sizes)
        sizes.clear()
        total += len(f"{total} of {missing}") + len(sizes) + len(str(missing))
        return (
            x * (total + taken) + float(copied[0]),
            x.numel() // 2 + x.dim(),
            x.is_floating_point() and not x.is_complex(),
        )


def test_strings_lists_and_dicts() -> None:
    check(script(Words()), (FLOATS, "n,3"))


class Windows(nn.Module):
    """Windows and ranges whose lengths are sizes."""

    def forward(
        self, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        n = x.size(0)
        return (
            x * torch.hann_window(n),
            torch.hamming_window(n) + x,
            torch.blackman_window(n),
            torch.linspace(0, 1, 5) * x.sum(),
        )


def test_windows_of_sizes() -> None:
    check(script(Windows()), (FLOATS, "n"), sizes=(2, 3, 8))


def test_steps_of_recurrent_cells() -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList(
                [nn.GRUCell(4, 5), nn.RNNCell(5, 5), nn.RNNCell(5, 5, nonlinearity="relu")]
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for cell in self.cells:
                x = cell(x)
            return x

    torch.manual_seed(0)
    check(script(Cells()), (FLOATS, "n,4"))
