"""Declarations of a program's arguments and attributes, and what is refused."""

from typing import Any

import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import Compiled, agree, import_module, run, script


class Arguments(nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        pair: tuple[torch.Tensor, torch.Tensor],
        extra: torch.Tensor | None = None,
        k: int = 2,
        scale: float = 1.0,
    ) -> torch.Tensor:
        y = x * k * scale + pair[0] - pair[1]
        if extra is not None:
            y = y + extra
        return y


class Listed(nn.Module):
    def forward(
        self, parts: list[torch.Tensor], flip: bool, parts_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        joined = torch.cat(parts, 1) if flip else torch.cat(parts, 0)
        return joined if parts_mask is None else joined * parts_mask


class Counter(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(2, 3))
        self.calls = 5

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        self.total.mul_(0.5)
        self.total = self.total + x
        self.calls += 1
        return self.total * 2, self.calls


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.logdet(x) + torch.logdet(x + 1)


def refusal(module: nn.Module, inputs: dict[str, str], **declared: Any) -> ImportFailed:
    with pytest.raises(ImportFailed) as caught:
        import_module(script(module), inputs, **declared)
    return caught.value


PAIR = {"x": "float32[n,3]", "pair_0": "float32[n,3]", "pair_1": "float32[3]"}


def test_tuples_optionals_and_consts() -> None:
    module = script(Arguments())
    x, one, other, extra = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3), torch.randn(3)
    feeds = {"x": x.numpy(), "pair_0": one.numpy(), "pair_1": other.numpy()}
    agree(list(Compiled(module, PAIR)(**feeds).values()), module(x, (one, other)))
    call = Compiled(module, {**PAIR, "extra": "float32[3]"}, consts={"k": 3, "scale": 0.5})
    agree(list(call(**feeds, extra=extra.numpy()).values()), module(x, (one, other), extra, 3, 0.5))


def test_a_number_as_an_input() -> None:
    module = script(Arguments())
    call = Compiled(module, {**PAIR, "k": "int64[]"})
    x, pair = torch.randn(4, 3), (torch.randn(4, 3), torch.randn(3))
    for k in (0, 7, -2):
        feeds = {
            "x": x.numpy(),
            "pair_0": pair[0].numpy(),
            "pair_1": pair[1].numpy(),
            "k": torch.tensor(k).numpy(),
        }
        agree(list(call(**feeds).values()), module(x, pair, None, k))


def test_lists() -> None:
    module = script(Listed())
    call = Compiled(
        module, {f"parts_{index}": "float32[n,3]" for index in range(3)}, consts={"flip": True}
    )
    parts = [torch.randn(2, 3) for _ in range(3)]
    agree(
        list(call(**{f"parts_{index}": part.numpy() for index, part in enumerate(parts)}).values()),
        module(parts, True),
    )
    masked = Compiled(
        module, {"parts_mask": "float32[]", "parts_0": "float32[n,3]"}, consts={"flip": True}
    )
    agree(
        list(masked(parts_0=parts[0].numpy(), parts_mask=torch.tensor(2.0).numpy()).values()),
        parts[0] * 2,
    )


def test_state_starts_anew_unless_it_is_declared() -> None:
    x = torch.randn(2, 3)
    fresh = Compiled(script(Counter()), {"x": "float32[2,3]"})
    for _ in range(2):
        agree(list(fresh(x=x.numpy()).values()), run(script(Counter()), x))
    carried = Compiled(script(Counter()), {"x": "float32[2,3]", "total": "float32[2,3]"})
    assert [spec.name for spec in carried.imported.outputs] == ["output_0", "output_1", "total"]
    reference, total = script(Counter()), torch.ones(2, 3).numpy()
    for _ in range(3):
        results = carried(x=x.numpy(), total=total)
        total = results["total"]
        agree([results["output_0"]], run(reference, x)[0])


def test_what_nothing_gives() -> None:
    error = refusal(Listed(), {"parts_0": "float32[n,3]"})
    assert error.code == "import.missing_input"
    assert error.failure.field == "consts.flip"
    assert "--const flip" in str(error)
    missing = refusal(Arguments(), {"pair_0": "float32[3]", "pair_1": "float32[3]"})
    assert missing.code == "import.input_rank"
    assert missing.failure.field == "inputs.x"


@pytest.mark.parametrize(
    ("inputs", "declared", "code"),
    [
        ({**PAIR, "y": "float32[n]"}, {}, "import.unknown_input"),
        (PAIR, {"consts": {"sr": 3}}, "import.unknown_input"),
        (PAIR, {"consts": {"k": 1.5}}, "import.const"),
        (PAIR, {"consts": {"x": 1}}, "import.const"),
        (PAIR, {"dims": {"m": 4}}, "import.unknown_dim"),
    ],
)
def test_wrong_declarations(inputs: dict[str, str], declared: dict[str, Any], code: str) -> None:
    assert refusal(Arguments(), inputs, **declared).code == code


def test_every_missing_operator_is_named() -> None:
    error = refusal(Random(), {"x": "float32[3,3]"})
    assert error.code == "import.unsupported_op"
    assert "random numbers" in str(error)
    assert "no importer for aten::logdet" in str(error)
    assert [lack["op"] for lack in error.failure.details["unsupported"]] == [
        "aten::rand_like",
        "aten::logdet",
        "aten::logdet",
    ]
