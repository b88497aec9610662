"""`relaxd run`: one inference of a bundle, on given or drawn inputs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.declarations import split_dim
from relaxd.cli.views import plain_table
from relaxd.client import extras
from relaxd.errors import DeclarationError

BundlePath = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A bundle: directory or tar.", show_default=False)
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads to compute with.",
        envvar="RELAXD_NUM_THREADS",
        show_default="one for each physical core",
        min=1,
    ),
]
Seed = Annotated[int, typer.Option(help="The seed of random inputs.", min=0)]


_EXAMPLES = {"dim": "batch=4", "input": "ids=ids.npy", "text": "'city=New York'"}


def run(
    bundle: BundlePath,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="A dim's size, for random inputs."),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE.npy", help="An input from a file."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs", metavar="FILE.npz", help="Inputs from a file.", show_default=False
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", metavar="NAME=TEXT", help="A string of an input; repeat it for more rows."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.npz",
            help="Where to save the outputs.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Run BUNDLE once and describe its outputs.

    Inputs that are not given are random: floats from a normal distribution, and integers 0 or 1,
    since an integer input is often an index into something of unknown length. In place of strings
    that are not given, what steps would make of them is random.

    Example: [bold]relaxd run out --dim batch=4 --input ids=ids.npy[/]
    """
    with extras.runtime():
        from relaxd.cli import arrays as files
        from relaxd.loader.opening import load

    chosen = {name: _size(name, text) for name, text in _pairs("dim", dim)}
    provided = {name: files.read(Path(text)) for name, text in _pairs("input", input)}
    if inputs is not None:
        provided = {**files.read_all(inputs), **provided}
    with extras.runtime():
        model = load(bundle, threads=threads)
    texts: dict[str, list[str]] = {}
    for name, value in _pairs("text", text):
        texts.setdefault(name, []).append(value)
    provided |= files.shape_texts(model, texts)
    arrays = files.complete(model, provided, chosen, seed)
    began = time.perf_counter()
    outputs = model.run(arrays)
    seconds = time.perf_counter() - began
    if output is not None:
        files.save(output, outputs)
    if json:
        described = {name: files.describe(array) for name, array in outputs.items()}
        print_json(
            {
                "model": model.manifest.name,
                "threads": model.threads,
                "seconds": seconds,
                "outputs": described,
            }
        )
        return
    table = plain_table("OUTPUT", "DTYPE", "SHAPE", "MIN", "MAX", "MEAN")
    for name, array in outputs.items():
        facts = files.describe(array)
        table.add_row(
            name,
            facts["dtype"],
            str(facts["shape"]),
            *(_brief(facts.get(key)) for key in ("min", "max", "mean")),
        )
    stdout().print(table)
    for name, array in outputs.items():
        if shown := files.describe(array).get("values"):
            more = ", ..." if array.size > len(shown) else ""
            stdout().print(f"{name}: {', '.join(shown)}{more}", markup=False)


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for text in texts or []:
        name, value = _SPLIT[option](text)
        if not name or not (value or option == "text"):
            example = _EXAMPLES[option]
            raise DeclarationError(
                f"cannot read --{option} {text!r}",
                field=f"{option}s",
                hint=f"as in --{option} {example}",
            )
        pairs.append((name, value))
    return pairs


def _split_file(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    return name.strip(), path.strip()


def _split_text(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value


_SPLIT = {"dim": split_dim, "input": _split_file, "text": _split_text}


def _size(name: str, text: str) -> int:
    if not text.isdecimal():
        raise DeclarationError(
            f"dim {name!r}: {text!r} is not a size",
            field=f"dims.{name}",
            hint="as in --dim batch=4",
        )
    return int(text)


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
