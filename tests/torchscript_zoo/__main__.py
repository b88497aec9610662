"""Real TorchScript models beside torch: `python -m tests.torchscript_zoo --models vit llama --json
zoo.json --markdown zoo.md`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torchscript_zoo.models import MODELS

if TYPE_CHECKING:
    from tests.torchscript_zoo.measure import Measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a model failed or a size was off by more than the tolerance."""
    options = _parser().parse_args(arguments)
    # tvm_ffi would import torch into the process that loads the bundles.
    sys.modules.setdefault("torch", None)
    from tests.torchscript_zoo.measure import measure

    results = []
    for name in options.models:
        print(name, file=sys.stderr, flush=True)
        results.append(measure(name))
    text = "\n".join(table(results))
    print(text)
    if options.json:
        options.json.write_text(
            json.dumps([result.to_json() for result in results], indent=1) + "\n"
        )
    if options.markdown:
        options.markdown.write_text(text + "\n")
    return int(not all(result.is_close for result in results))


def table(results: "Sequence[Measured]") -> Iterator[str]:
    """A row for each model: seconds to compile, the worst difference, and the sizes it is at."""
    yield "| model | compiled in | worst difference | at |"
    yield "|---|---|---|---|"
    for result in results:
        cells = (result.name, f"{result.compile_seconds:.0f} s", *_worst(result))
        yield f"| {' | '.join(cells)} |"


def _worst(result: "Measured") -> tuple[str, str]:
    if result.error or not result.points:
        return f"**failed** {result.error}", ""
    point = max(result.points, key=lambda point: point.worst)
    worst, index = f"{point.worst:.1e}", _report(point.sizes)
    if not all(point.is_close for point in result.points):
        return f"**wrong** {worst}", index
    if result.proves_nothing:
        return f"**proves nothing** {worst}", index
    hidden = ", ".join(result.unproven)
    return worst, f"{index}; nothing is proven of outputs {hidden}" if hidden else index


def _report(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torchscript_zoo", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=list(MODELS),
        metavar="NAME",
        help=", ".join(MODELS),
    )
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
