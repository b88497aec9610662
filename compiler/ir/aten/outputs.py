"""The results of a program as the outputs of a model."""

from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten.memory import Ref
from compiler.ir.aten.scope import Scope
from compiler.ir.aten.structure import kind_of, scalar_tensor
from compiler.ir.graph.values import Value


def refuse_repeats(names: list[str]) -> None:
    """Raise ImportFailed where two outputs have one name, as a key `a_0` beside a tuple under the
    key `a`.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ImportFailed(
            f"two outputs are called {repeated[0]!r}",
            reason="unsupported_output",
            hint="give the keys of the returned dict other names",
        )


def tensor_of(scope: Scope, name: str, value: Any) -> Value:
    """An output as a tensor; raises ImportFailed for what is neither one nor a number."""
    if isinstance(value, Ref):
        return scope.memory.read(value)
    if isinstance(value, str):
        raise ImportFailed(f"the output {name!r} is a string", reason="unsupported_output")
    number = kind_of(value)
    if number is None:
        raise ImportFailed(
            f"the output {name!r} is neither a tensor nor a number", reason="unsupported_output"
        )
    return scalar_tensor(scope.builder, value, number)
