"""`relaxd run`: one inference of a bundle, on given or drawn inputs."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import numpy as np
import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import plain_table
from relaxd.contract.tensors import STORAGE
from relaxd.errors import DeclarationError
from relaxd.loader.binding import Binding
from relaxd.loader.samples import dim_values, draw

if TYPE_CHECKING:
    from relaxd.loader.model import Model

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
Seed = Annotated[int, typer.Option(help="Of the inputs that are drawn.", min=0)]


def run(
    bundle: BundlePath,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim", metavar="NAME=SIZE", help="A dim's value for the inputs that are drawn."
        ),
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

    Inputs that are not given are drawn: normal floats, and integers 0 or 1, since an integer input
    often indexes something of unknown length.

    Example: [bold]relaxd run out --dim batch=4 --input ids=ids.npy[/]
    """
    from relaxd.loader.model import load

    chosen = {name: _size(name, text) for name, text in _pairs("dim", dim)}
    given = {name: _read(Path(text)) for name, text in _pairs("input", input)}
    if inputs is not None:
        given = {**_read_all(inputs), **given}
    model = load(bundle, threads=threads)
    arrays = _complete(model, given, chosen, seed)
    began = time.perf_counter()
    outputs = model.run(arrays)
    seconds = time.perf_counter() - began
    if output is not None:
        with output.open("wb") as file:
            np.savez(file, **{name: _portable(array) for name, array in outputs.items()})  # type: ignore[arg-type]
    if json:
        described = {name: _describe(array) for name, array in outputs.items()}
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
        facts = _describe(array)
        table.add_row(
            name,
            facts["dtype"],
            str(facts["shape"]),
            *(_brief(facts[key]) for key in ("min", "max", "mean")),
        )
    stdout().print(table)


def _complete(
    model: "Model", given: Mapping[str, np.ndarray], chosen: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """The given inputs and, at dims that agree with them, drawn ones for the rest."""
    known = tuple(spec for spec in model.inputs if spec.name in given)
    implied = Binding(known, model.dims).solve(tuple(given[spec.name].shape for spec in known))
    rest = tuple(spec for spec in model.inputs if spec.name not in given)
    return {**draw(rest, dim_values(model.dims, {**chosen, **implied}), seed), **given}


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            example = "batch=4" if option == "dim" else "ids=ids.npy"
            raise DeclarationError(
                f"cannot read --{option} {name + equals + value!r}",
                field=f"{option}s",
                hint=f"as in --{option} {example}",
            )
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _size(name: str, text: str) -> int:
    if not text.isdecimal():
        raise DeclarationError(
            f"dim {name!r}: {text!r} is not a size",
            field=f"dims.{name}",
            hint="as in --dim batch=4",
        )
    return int(text)


def _read(path: Path) -> np.ndarray:
    content = _numpy_file(path)
    if isinstance(content, np.ndarray):
        return content
    raise DeclarationError(
        f"{path} holds several arrays", field="inputs", hint="give an .npz with --inputs"
    )


def _read_all(path: Path) -> dict[str, np.ndarray]:
    content = _numpy_file(path)
    if isinstance(content, dict):
        return content
    raise DeclarationError(
        f"{path} holds one array without a name",
        field="inputs",
        hint=f"give it with --input NAME={path}",
    )


def _numpy_file(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            return dict(content)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DeclarationError(
            f"cannot read {path}: {error}",
            field="inputs",
            hint="give a file that numpy.save or numpy.savez wrote",
        ) from error


def _portable(array: np.ndarray) -> np.ndarray:
    """What an .npz cannot name is widened: floats to float32, integers of few bits to 8."""
    name = array.dtype.name
    if name in STORAGE and "float" not in name:
        return array.astype(STORAGE[name])
    return array.astype(np.float32) if name in STORAGE or name == "bfloat16" else array


def _describe(array: np.ndarray) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "min": None,
        "max": None,
        "mean": None,
    }
    if array.size:
        values = array.astype(np.float64)
        facts |= {
            key: value
            for key in ("min", "max", "mean")
            if np.isfinite(value := float(getattr(values, key)()))
        }
        facts["finite"] = bool(np.isfinite(values).all())
    return facts


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
