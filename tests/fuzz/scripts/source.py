"""Draws a TorchScript program of two float matrices `n,C`, with branches and loops, from a seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.fuzz.draft import CHANNELS

_MOST_STATEMENTS = 6
_POINTS = (1, 2, 7, 17, 33)
_ELEMENTS = (
    "torch.relu({a})", "torch.tanh({a})", "torch.sigmoid({a})", "torch.abs({a})", "torch.sin({a})",
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * {f} + {b}", "torch.maximum({a}, {b})",
    "torch.where({p} > {q}, {a}, {b} * 0.5)", "{a}.clamp(-1.0, {f})", "torch.exp(torch.tanh({a}))",
    "{a}.masked_fill({p} > {f}, {f})", "{a} / (1.0 + {b}.abs())",
)  # fmt: skip
_ROWS = (
    "torch.softmax({a}, {d})", "{a} - {a}.mean({d}, keepdim=True)", "{a}.flip({d})",
    "torch.roll({a}, {k}, {d})", "{a}.cumsum({d}) * 0.1", "{p}.sort({d})[0]",
    "torch.cat([{a}[{k}:], {b}[:{k}]], 0)", "({a} @ {b}.t()) @ {a} * 0.01",
    "torch.stack([{a}, {b}], 1).sum(1)", "{a}.t().contiguous().t()",
    "{a}.view(-1).view({a}.size(0), -1)", "{a}.amax({d}, keepdim=True) + {b}",
    "torch.layer_norm({a}, [{a}.size(1)])", "{a}.gather(1, torch.argsort({p}, 1))",
    "torch.cat([{a}, {b}], 1)[:, ::2]", "{a}.t().unsqueeze(0).squeeze(0).t()",
    "torch.einsum('ij,kj->ik', {a}, {b})[:, :1] * 0.1 + {a}",
    "{a}.scatter_add(0, torch.zeros_like({a}, dtype=torch.int64), {b})",
    "torch.tril({a}, {k})", "{a}.index_select(0, torch.arange({a}.size(0) - 1, -1, -1))",
)  # fmt: skip
_CONDITIONS = (
    "x.size(0) > {k}", "x.size(0) % 2 == 0", "bool({p}.sum() > 0.0)", "bool(({p} > {f}).any())",
    "x.size(0) < 3 or x.size(1) > 8", "not bool({q}[0, 0] > 0.0)",
)  # fmt: skip
_TURNS = ("3", "x.size(0)", "min(x.size(0), 4)", "x.size(1) // 4 + 1")


@dataclass(frozen=True)
class Script:
    """statements: of the body, each on lines of its own; columns: C; rows: every n it runs at."""

    statements: tuple[str, ...]
    columns: int
    rows: tuple[int, ...]
    seed: int

    @property
    def source(self) -> str:
        lines = ["a = x", "b = y"]
        for statement in (*self.statements, "return a, b"):
            lines += statement.splitlines()
        return "def forward(self, x, y):\n" + "".join(f"    {line}\n" for line in lines)

    def without(self, position: int) -> "Script":
        """Less one of the statements."""
        rest = self.statements[:position] + self.statements[position + 1 :]
        return replace(self, statements=rest)


def generate(seed: int) -> Script:
    """One to six statements."""
    writer = _Writer(np.random.default_rng((seed, 1)))
    count = int(writer.random.integers(1, _MOST_STATEMENTS + 1))
    columns = int(writer.choose([str(size) for size in CHANNELS if size > 1]))
    return Script(tuple(writer.statement(0) for _ in range(count)), columns, _POINTS, seed)


class _Writer:
    """Every value keeps the shape of `x`: statements may follow in any order."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random

    def choose(self, options: Sequence[str]) -> str:
        return options[int(self.random.integers(len(options)))]

    def statement(self, depth: int) -> str:
        kind = self.random.random()
        if depth > 1 or kind < 0.6:
            return f"{self.choose('ab')} = {self._expression()}"
        return (self._branch, self._loop, self._while, self._list)[int((kind - 0.6) * 10)](depth)

    def _expression(self) -> str:
        """A function of a and b; what is not continuous reads the inputs p and q, which are the
        same for every engine.
        """
        form = self.choose(_ELEMENTS if self.random.random() < 0.5 else _ROWS)
        values = {"f": self.choose(("0.5", "1.25", "2.0")), "d": self.choose(("0", "1", "-1"))}
        pairs = zip("abpq", (self.choose("ab"), self.choose("ab"), self.choose("xy"),
                             self.choose("xy")), strict=True)  # fmt: skip
        return form.format(**dict(pairs), **values, k=self.choose("0123"))

    def _condition(self) -> str:
        p, q = self.choose("xy"), self.choose("xy")
        return self.choose(_CONDITIONS).format(p=p, q=q, f="1.5", k=self.choose("1257"))

    def _block(self, depth: int) -> str:
        count = 1 + int(self.random.random() < 0.4)
        lines = "\n".join(self.statement(depth + 1) for _ in range(count)).splitlines()
        return "\n".join("    " + line for line in lines)

    def _branch(self, depth: int) -> str:
        text = f"if {self._condition()}:\n{self._block(depth)}"
        return f"{text}\nelse:\n{self._block(depth)}" if self.random.random() < 0.6 else text

    def _loop(self, depth: int) -> str:
        name = f"i{depth}"
        bounded = "\n    a = torch.tanh(a)\n    b = torch.sin(b)"
        text = f"for {name} in range({self.choose(_TURNS)}):\n{self._block(depth)}{bounded}"
        if self.random.random() < 0.3:
            text += f"\n    if {name} >= 2:\n        break"
        return text

    def _while(self, depth: int) -> str:
        name, turns = f"w{depth}", self.choose(("3", "x.size(0)"))
        turn = f"    a = torch.tanh(a + b * 0.25)\n    {name} += 2"
        return f"{name} = 0\nwhile {name} < {turns}:\n{turn}"

    def _list(self, depth: int) -> str:
        """Rows in a list, which a loop fills."""
        name, turns = f"l{depth}", self.choose(("3", "x.size(0)"))
        turn = f"    {name}.append(torch.tanh({name}[-1] * 0.5 + b))"
        return f"{name} = [a]\nfor j in range({turns}):\n{turn}\na = torch.stack({name}).mean(0)"
