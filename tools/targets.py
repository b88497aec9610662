"""Writes the table of targets into docs/reference/targets.md: `python -m tools.targets`."""

from pathlib import Path

from compiler.targets import NATIVE, Runtime, Target, registry
from relaxd.contract.options import Flavour

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "targets.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
_COLUMNS = ("Target", "Processor", "Vectors", "System", "Library", "TVM's runtime", "Status")
_LIBRARIES = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF", "wasm": "WebAssembly"}
_RUNTIMES = {
    Runtime.BUNDLED: "in the bundle",
    Runtime.LINKED: "linked by the program",
}


def table() -> str:
    """The registry as Markdown, `native` aside: that is whatever this machine is."""
    rows = [_row(target) for target in registry() if target.name != NATIVE]
    return "\n".join(_line(cells) for cells in (_COLUMNS, ("---",) * len(_COLUMNS), *rows))


def _row(target: Target) -> tuple[str, ...]:
    platform = target.platform
    vectors = (
        f"{target.vector_registers} of {target.vector_bits} bits" if target.vector_bits else "none"
    )
    device = f" with {target.device.sm or target.device.name}" if target.device else ""
    system = f"{platform.os}, glibc {platform.libc}" if platform.libc else platform.os
    return (
        f"`{target.name}`",
        f"{target.arch}{device}",
        vectors,
        system,
        f"`{platform.library}` ({_LIBRARIES[platform.object_format.value]})",
        ", or ".join(_runtime(target, flavour) for flavour in target.flavours),
        target.status.value,
    )


def _runtime(target: Target, flavour: Flavour) -> str:
    return "none" if flavour is Flavour.STANDALONE else _RUNTIMES[target.platform.runtime]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str) -> str:
    """The page with the table of now in place of the one it has."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
