"""`relaxd.toml`: the models that a repository compiles, for which targets, and their budgets."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxd.cli.evaluating import Evaluation, read_evaluation
from relaxd.client.operators import read_operators
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError, suggest
from relaxd.reports.gates import Gate

FILENAME = "relaxd.toml"
_DECLARED = ("dims", "inputs", "consts", "shapes", "options", "targets")
_FILES = ("samples", "operators", "accuracy")
_DEFAULTS = frozenset({"fail_if", "project", "require_verified"})
_KNOWN = frozenset({"name", "path", *_FILES, *_DEFAULTS, *_DECLARED})


@dataclass(frozen=True)
class ProjectModel:
    """A model of the project; `fail_if`: conditions of `relaxd diff` that fail the check; project:
    whom a service counts its usage for.
    """

    name: str
    path: Path
    request: CompileRequest
    samples: Path | None
    fail_if: tuple[str, ...]
    require_verified: bool
    accuracy: Evaluation | None = None
    project: str = ""


def read_project(path: Path) -> tuple[ProjectModel, ...]:
    """The models of the file; raises DeclarationError that names the one at fault."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise _wrong(f"cannot read {path}: {error.strerror}", "config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(f"{path} is not valid TOML: {error}", "config") from error
    if unknown := sorted(document.keys() - _DEFAULTS - {"model"}):
        raise _unknown_key(str(path), unknown[0], _DEFAULTS | {"model"}, unknown[0])
    listed = document.get("model")
    if not isinstance(listed, list) or not listed:
        raise _wrong(f"{path} lists no model", "model")
    models = tuple(_model(entry, document, path.parent) for entry in listed)
    names = [model.name for model in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _wrong(f"two models are named {twice!r}", "model.name")
    return models


def _model(entry: Any, defaults: Mapping[str, Any], folder: Path) -> ProjectModel:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise _wrong("a model has no path", "model.path")
    name = str(entry.get("name") or Path(entry["path"]).stem)
    if unknown := sorted(entry.keys() - _KNOWN):
        raise _unknown_key(f"model {name!r}", unknown[0], _KNOWN, f"model.{unknown[0]}")
    declared = {key: entry[key] for key in _DECLARED if key in entry}
    if "operators" in entry:
        declared["operators"] = read_operators(folder / str(entry["operators"]))
    fail_if = entry.get("fail_if", defaults.get("fail_if", []))
    if not isinstance(fail_if, list) or not all(isinstance(text, str) for text in fail_if):
        raise _wrong(f"fail_if of model {name!r} must be a list of conditions", "model.fail_if")
    for text in fail_if:
        Gate.of(text)  # refuses an invalid condition before anything is compiled
    return ProjectModel(
        name,
        folder / entry["path"],
        CompileRequest.of(**declared),
        folder / entry["samples"] if "samples" in entry else None,
        tuple(fail_if),
        bool(entry.get("require_verified", defaults.get("require_verified", True))),
        read_evaluation(entry["accuracy"], folder) if "accuracy" in entry else None,
        str(entry.get("project", defaults.get("project", ""))),
    )


def _unknown_key(where: str, key: str, known: Iterable[str], field: str) -> DeclarationError:
    hint = suggest(key, known, f"known keys: {', '.join(sorted(known))}")
    return DeclarationError(f"{where} has the unknown key {key!r}", field=field, hint=hint)


def _wrong(message: str, field: str) -> DeclarationError:
    example = '[[model]] path = "m.onnx", dims = { batch = "1:64" }, targets = ["x86-64-v3"]'
    return DeclarationError(message, field=field, hint=f"as in {example}")
