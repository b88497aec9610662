"""`python -m compiler.ir.aten --list`: the operators that the importer covers, as the table
in docs/reference/torchscript.md.
"""

import argparse
import sys
from pathlib import Path

HEAD = "<!-- made by: python -m compiler.ir.aten --list -->"


def main() -> int:
    """0; with --write the table in the file is replaced, without it printed."""
    parser = argparse.ArgumentParser(prog="python -m compiler.ir.aten", description=__doc__)
    parser.add_argument("--list", action="store_true", required=True, help="list the operators")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="replace what follows the marker line in FILE"
    )
    options = parser.parse_args()
    page = f"{HEAD}\n\n{table()}"
    if options.write is None:
        print(page)
        return 0
    before = options.write.read_text().partition(HEAD)[0]
    options.write.write_text(f"{before}{page}\n")
    return 0


def table() -> str:
    """Operators by the module that serves them, with counts."""
    # TVM's foreign function interface would import torch, which listing does not need.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    from compiler.ir.aten import registry
    from compiler.ir.aten.operators import FAMILIES

    lines = [
        f"{len(registry.names())} operators; functions of tensors work in place too, with an "
        "underscore.",
        "",
        "| family | operators |",
        "|---|---|",
    ]
    for family in FAMILIES:
        mine = sorted(
            name.removeprefix("aten::")
            for name in registry.names()
            if registry.family(name) == family
        )
        lines.append(f"| {family} | {' '.join(f'`{name}`' for name in mine)} |")
    lines += ["", "Refused by name:", ""]
    lines += [f"- `{name}`: {why}" for name, why in sorted(registry.REFUSED.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
