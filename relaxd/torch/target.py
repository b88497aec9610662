"""Finds the module of torch, or what makes one, that `MODULE:FUNCTION` names in the user's code."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from relaxd.errors import DeclarationError, suggest
from relaxd.torch.errors import ExportError, load_torch
from relaxd.torch.sources import locate

_EXAMPLE = "as in relaxd export net:make, or models/net.py:Net"


def load_target(text: str) -> tuple[Any, Any]:
    """The module and its example, None where the function gives none.

    text: `package.module:name` or `path/net.py:name`, where name is an instance of `nn.Module`, or
    a class or function that takes no arguments and gives a module or (module, example). The
    current folder is on the path. Raises DeclarationError, or ExportError where the user's code
    fails.
    """
    source, colon, name = text.rpartition(":")
    if not colon or not source or not name:
        raise _refusal(f"cannot read {text!r}", _EXAMPLE)
    return call_target(_attribute(_import(source), name, source), text)


def call_target(named: Any, text: str) -> tuple[Any, Any]:
    """The module and its example of an object that the user named."""
    torch = load_torch()
    result = named
    if not isinstance(named, torch.nn.Module):
        if not callable(named):
            raise _refusal(f"{text} is {type(named).__name__}", _wanted())
        _require_no_arguments(named, text)
        try:
            result = named()
        except Exception as error:
            raise _of_user(f"{text} failed", error) from error
    module, example = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(module, torch.nn.Module):
        raise _refusal(f"{text} gives {type(module).__name__}", _wanted())
    return module, example


def _import(source: str) -> ModuleType:
    folder = str(Path(source).resolve().parent) if source.endswith(".py") else str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if source.endswith(".py"):
        return _import_file(Path(source))
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source}.".startswith(f"{error.name}."):
            raise _of_user(f"importing {source} failed", error) from error
        raise _refusal(
            f"there is no Python module {error.name!r}",
            f"call it from the folder that has it, {_EXAMPLE}",
        ) from error
    except Exception as error:
        raise _of_user(f"importing {source} failed", error) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _refusal(f"there is no file {path}", _EXAMPLE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and torch look a class's module up there.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _of_user(f"importing {path} failed", error) from error
    return module


def _attribute(module: ModuleType, name: str, source: str) -> Any:
    attribute: Any = module
    for part in name.split("."):
        if not hasattr(attribute, part):
            known = [key for key in vars(attribute) if not key.startswith("_")]
            raise _refusal(f"{source} has no {name!r}", suggest(part, known, _EXAMPLE))
        attribute = getattr(attribute, part)
    return attribute


def _require_no_arguments(function: Any, text: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise _refusal(
            f"{text} cannot be called without arguments: {error}",
            "name a function that makes the module and returns it, or (module, example inputs)",
        ) from error
    except ValueError:
        return  # a callable without a signature


def _wanted() -> str:
    return (
        "name a torch.nn.Module, or a class or function that takes no arguments and gives one, or "
        "(module, example inputs)"
    )


def _refusal(message: str, hint: str) -> DeclarationError:
    return DeclarationError(message, field="target", hint=hint)


def _of_user(what: str, error: Exception) -> ExportError:
    where = locate(error)
    source = f" at {where.text}" if where else ""
    return ExportError(
        f"{what}{source}: {type(error).__name__}: {str(error)[:300]}",
        source=where.position if where else None,
    )
