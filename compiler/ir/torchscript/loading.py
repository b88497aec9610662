"""TorchScript files to graphs: loaded, set to evaluation, frozen, inlined."""

import re
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from compiler.errors import LoadError
from compiler.ir.aten import torchvision
from compiler.ir.aten.torch_package import load_torch


@dataclass(frozen=True, eq=False)
class Program:
    """A frozen module with its forward inlined into one graph; `schema` names and types its
    arguments.
    """

    module: Any
    graph: Any
    schema: Any


def load(source: Path | bytes) -> Program:
    """Read a saved module; raises LoadError for a file that torch does not take, ToolchainMissing
    without torch.
    """
    torch = load_torch()
    try:
        module = _read(torch, source)
    except Exception as error:
        raise LoadError(
            f"torch cannot load the model: {_first_line(error)}",
            reason="not_torchscript",
            field="model",
            hint=_hint(str(error)),
        ) from error
    return prepare(module)


def _read(torch: Any, source: Path | bytes) -> Any:
    """The module, with torchvision's operators defined if it names them."""

    def read() -> Any:
        file = BytesIO(source) if isinstance(source, bytes) else str(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.load(file, map_location="cpu")

    try:
        return read()
    except RuntimeError as error:
        if torchvision.NAMESPACE not in str(error) or not torchvision.define(torch):
            raise
    return read()


def _hint(message: str) -> str:
    match = re.search(r"Unknown builtin op: (\w+::\w+)", message)
    if match is None:
        return "save it with torch.jit.save"
    return (
        f"the model calls {match[1]}, which torch alone does not have: write that part in torch's "
        "own operators and save it again"
    )


def prepare(module: Any) -> Program:
    """A loaded module in evaluation mode, frozen and inlined; raises LoadError where it has no
    forward.
    """
    torch = load_torch()
    if not module._c._has_method("forward"):
        raise LoadError("the module has no method forward", reason="no_forward", field="model")
    frozen = module
    if hasattr(module, "training"):
        module.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frozen = torch.jit.freeze(module)
    graph = frozen.graph
    torch._C._jit_pass_inline(graph)
    torch._C._jit_pass_remove_dropout(frozen._c)
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_dce(graph)
    return Program(frozen, graph, frozen._c._get_method("forward").schema)


def _first_line(error: BaseException) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )[:300]
