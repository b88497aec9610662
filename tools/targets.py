"""Writes the tables of docs/reference/targets.md: `python -m tools.targets`."""

from collections.abc import Iterable
from pathlib import Path

from compiler.targets import NATIVE, Platform, Runtime, Target, registry
from relaxd.contract.options import Flavour

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "targets.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
ABI_BEGIN, ABI_END = "<!-- abi -->", "<!-- end of abi -->"
_ABI = ("System", "Reserved registers", "Stack", "Red zone", "Pages", "Calls beside those")
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


def abi_table() -> str:
    """The table of what libraries for each platform ask of their host, as Markdown."""
    platforms = dict.fromkeys(
        target.platform
        for target in registry()
        if target.device is None and target.platform.abi.calls
    )
    common = set.intersection(*(set(platform.abi.calls) for platform in platforms))
    rows = [_abi_row(platform, common) for platform in platforms]
    lines = [_line(cells) for cells in (_ABI, ("---",) * len(_ABI), *dict.fromkeys(rows))]
    return "\n".join((f"Every library may call {_list(common)}.", "", *lines))


def _abi_row(platform: Platform, common: set[str]) -> tuple[str, ...]:
    abi = platform.abi
    return (
        f"{platform.os}, {platform.arch}",
        _list(abi.reserved),
        f"{abi.stack} bytes",
        f"{abi.red_zone} bytes",
        f"{abi.page >> 10} KiB" if abi.page else "none",
        _list(set(abi.calls) - common),
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str) -> str:
    """The page with the tables of now in place of those it has."""
    text = _replace(text, BEGIN, table(), END)
    return _replace(text, ABI_BEGIN, abi_table(), ABI_END)


def _replace(text: str, begin: str, new: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{new}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
