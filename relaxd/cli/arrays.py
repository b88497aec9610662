"""Arrays on the command line: read from files, drawn for a bundle's inputs, saved, described."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from relaxd.contract.dims.names import option_name
from relaxd.contract.dims.tensors import STORAGE, TEXT
from relaxd.errors import DeclarationError, suggest
from relaxd.loader.model import Model
from relaxd.loader.samples import dim_values, draw
from relaxd.loader.tensors.binding import Binding

MOST_SHOWN = 4


def complete(
    model: Model, arguments: Mapping[str, np.ndarray], chosen: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """The arguments, encoded where they are strings, and random inputs for the rest at dims that
    agree with them; raises DeclarationError for a chosen dim that does not.
    """
    model, arguments = model.library, model.encode(arguments)
    known = tuple(spec for spec in model.inputs if spec.name in arguments)
    implied = Binding(known, model.dims).solve(tuple(arguments[spec.name].shape for spec in known))
    for name, size in chosen.items():
        if size != implied.get(name, size):
            raise DeclarationError(
                f"dim {name!r} is {size}, but the given inputs have {implied[name]}",
                field=f"dims.{name}",
                hint=f"leave --dim {option_name(name)} out, or give other inputs",
            )
    rest = tuple(spec for spec in model.inputs if spec.name not in arguments)
    values = dim_values(model.dims, {**chosen, **implied})
    return {**draw(rest, values, seed, model.manifest.state), **arguments}


def read(path: Path) -> np.ndarray:
    """The array of an .npy; raises DeclarationError."""
    content = _numpy_file(path)
    if isinstance(content, np.ndarray):
        return content
    raise DeclarationError(
        f"{path} holds several arrays", field="inputs", hint="give an .npz with --inputs"
    )


def read_all(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; raises DeclarationError."""
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
    except FileNotFoundError as error:
        raise DeclarationError(
            f"there is no file {path}", field="inputs", hint="give the path of an .npy or .npz file"
        ) from error
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DeclarationError(
            f"cannot read {path}: {error}",
            field="inputs",
            hint="give a file that numpy.save or numpy.savez wrote",
        ) from error


def shape_texts(model: Model, texts: Mapping[str, list[str]]) -> dict[str, np.ndarray]:
    """Arrays of strings for inputs by name: as many rows as the texts fill; raises
    DeclarationError for texts that fill none, and inputs that take no strings.
    """
    specs = {spec.name: spec for spec in model.inputs if spec.dtype == TEXT}
    result = {}
    for name, values in texts.items():
        if name not in specs:
            raise DeclarationError(
                f"the bundle has no input {name!r} of strings",
                field=f"inputs.{name}",
                hint=suggest(name, specs, f"it has: {', '.join(specs) or 'none'}"),
            )
        shape = [1 if axis.size is None else axis.size for axis in specs[name].shape]
        rows, rest = divmod(len(values), math.prod(shape))
        if rest or not rows or (rows > 1 and specs[name].shape[0].size is not None):
            raise DeclarationError(
                f"{len(values)} texts do not fill {specs[name]}", field=f"inputs.{name}"
            )
        result[name] = np.array(values, object).reshape([rows * shape[0], *shape[1:]])
    return result


def save(path: Path, outputs: Mapping[str, np.ndarray]) -> None:
    """Write an .npz."""
    with path.open("wb") as file:
        np.savez(file, **{name: _portable(array) for name, array in outputs.items()})  # type: ignore[arg-type]


def _portable(array: np.ndarray) -> np.ndarray:
    """Widen types that an .npz cannot name: floats to float32, 2- and 4-bit integers to 8 bits,
    strings to a common length.
    """
    if array.dtype == object:
        return array.astype(str)
    name = array.dtype.name
    if name in STORAGE and "float" not in name:
        return array.astype(STORAGE[name])
    return array.astype(np.float32) if name in STORAGE or name == "bfloat16" else array


def describe(array: np.ndarray) -> dict[str, Any]:
    """Type, shape and range, of strings the first in place of a range."""
    if array.dtype == object:
        shown = [str(one) for one in array.reshape(-1)[:MOST_SHOWN]]
        return {"dtype": TEXT, "shape": list(array.shape), "values": shown}
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
