"""Keeps LSTM, GRU and RNN as one operator while a module is exported. torch.export would unroll
their time axis, and so fix it; the operator itself takes every length.

While torch traces, the functions that `nn.LSTM` and the like call are operators of our own, with
shapes of their own; in the finished program torch's operators replace them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaxd.torch.errors import load_torch

_TAIL = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)
_SCHEMAS = {
    "lstm": f"(Tensor input, Tensor[] hx, {_TAIL}) -> (Tensor, Tensor, Tensor)",
    "gru": f"(Tensor input, Tensor hx, {_TAIL}) -> (Tensor, Tensor)",
    "rnn_tanh": f"(Tensor input, Tensor hx, {_TAIL}) -> (Tensor, Tensor)",
    "rnn_relu": f"(Tensor input, Tensor hx, {_TAIL}) -> (Tensor, Tensor)",
}
_NAMESPACE = "relaxd_export"
_DATA, _STATE, _BIDIRECTIONAL = 0, 1, 7
_libraries: list[Any] = []
"""The operators, defined once in a process."""


def has_recurrent(module: Any) -> bool:
    """True if the module has an LSTM, a GRU or an RNN."""
    torch = load_torch()
    return any(isinstance(layer, torch.nn.RNNBase) for layer in module.modules())


@contextmanager
def keep_recurrent() -> Iterator[None]:
    """Within the body, `nn.LSTM`, `nn.GRU` and `nn.RNN` call operators that keep the time axis."""
    torch = load_torch()
    _define(torch)
    functions = torch._VF
    original = {name: getattr(functions, name) for name in _SCHEMAS}

    def replace(name: str) -> Any:
        operator = getattr(getattr(torch.ops, _NAMESPACE), name).default

        def call(*arguments: Any) -> Any:
            # Packed sequences give one argument more, the sizes of batches, in the second place.
            packed = torch.is_tensor(arguments[1]) and not isinstance(arguments[3], bool)
            return original[name](*arguments) if packed else operator(*arguments)

        return call

    for name in _SCHEMAS:
        setattr(functions, name, replace(name))
    try:
        yield
    finally:
        for name in _SCHEMAS:
            delattr(functions, name)


def restore_operators(program: Any) -> None:
    """Replace our operators by torch's."""
    torch = load_torch()
    for node in program.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "namespace", "") == _NAMESPACE:
            name = node.target._schema.name.partition("::")[2]
            node.target = getattr(torch.ops.aten, name).input
    program.graph_module.recompile()


def _define(torch: Any) -> None:
    if _libraries:
        return
    library = torch.library.Library(_NAMESPACE, "DEF")
    for name, schema in _SCHEMAS.items():
        library.define(f"{name}{schema}")
        library.impl(name, getattr(torch.ops.aten, name).input, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", _shapes_of, lib=library)
    _libraries.append(library)


def _shapes_of(*arguments: Any) -> Any:
    """The results of an operator in the shapes that the real ones have."""
    data, state = arguments[_DATA], arguments[_STATE]
    states = state if isinstance(state, (list, tuple)) else [state]
    width = states[0].shape[-1] * (2 if arguments[_BIDIRECTIONAL] else 1)
    output = data.new_empty([*data.shape[:-1], width])
    return output, *(item.new_empty(item.shape) for item in states)
