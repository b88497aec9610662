"""`python -m compiler.ir.pt2 --write`: the table of ATen's signatures, from the installed torch."""

import argparse
import json
import sys
import textwrap
from pathlib import Path

HEAD = '''"""ATen's signatures as torch {version} has them; see `compiler.ir.pt2.signatures`."""

# made by: python -m compiler.ir.pt2 --write
# ruff: noqa: E501
# fmt: off

TEXT = """
{text}
"""

VIEWS = """
{views}
"""

REFUSED = {refused}
'''
_CONTAINERS = ("t_list", "t", "str", "Dict", "Tensor_list", "int_list", "float_list", "bool_list")


def main() -> int:
    """0; the module of signatures is written anew."""
    parser = argparse.ArgumentParser(prog="python -m compiler.ir.pt2", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="replace the table")
    parser.parse_args()
    Path(__file__).with_name("signature_table.py").write_text(render())
    return 0


def render() -> str:
    """The module of signatures: of each operator that the importer has, those without `out`."""
    import torch

    from compiler.ir.aten.torch_package import without_torch

    with without_torch():
        from compiler.ir.aten import (
            operators,  # noqa: F401  fills the registry
            registry,
        )
    entries = {
        f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}": schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and (registry.is_covered(schema.name) or schema.name in registry.REFUSED)
        and not any(argument.is_out for argument in schema.arguments)
        and schema.overload_name not in _CONTAINERS
        and hasattr(torch.ops.aten, schema.name.removeprefix("aten::"))
    }
    texts = (f"{name}({_arguments(schema)})" for name, schema in sorted(entries.items()))
    # Only functions of strings have a blank for a default.
    words = " ".join(text for text in texts if " " not in text)
    views = (name.removeprefix("aten::") for name in sorted(registry.VIEW))
    return HEAD.format(
        version=torch.__version__.partition("+")[0],
        text=_fill(words),
        views=_fill(" ".join(views)),
        refused=json.dumps(dict(sorted(registry.REFUSED.items())), indent=4),
    )


def _fill(words: str) -> str:
    return textwrap.fill(words, 140, break_long_words=False, break_on_hyphens=False)


def _arguments(schema: object) -> str:
    return ";".join(
        f"{argument.name}={json.dumps(argument.default_value, separators=(',', ':'))}"
        if argument.has_default_value()
        else argument.name
        for argument in schema.arguments  # type: ignore[attr-defined]
    )


if __name__ == "__main__":
    sys.exit(main())
