"""The modules that sentence-transformers keeps in a folder beside the encoder."""

import json
from collections.abc import Mapping
from typing import Any

from compiler.ir.decoders.design import Named
from compiler.ir.decoders.quantized import Array
from compiler.ir.encoders.design import Activation, Linear
from compiler.ir.encoders.sentences import Dense, Mode, Module, Normalize, Pooling
from compiler.ir.folder.config import Config, document, unsupported_error, unusable
from compiler.ir.folder.tensors import Tensors, tensors_of
from relaxd.contract.model_folder import CONFIG, MODULES, WEIGHTS

_SAVE = "export the encoder alone, without modules.json, and compute the rest outside"
_TRANSFORMER = "Transformer"
_LEGACY = {
    "pooling_mode_cls_token": Mode.CLS,
    "pooling_mode_max_tokens": Mode.MAX,
    "pooling_mode_mean_tokens": Mode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": Mode.MEAN_SQRT,
    "pooling_mode_weightedmean_tokens": Mode.WEIGHTED,
    "pooling_mode_lasttoken": Mode.LAST,
}
"""Settings of versions before 6, in the order in which vectors are put together."""
_ACTIVATIONS = {
    "Identity": None,
    "Tanh": Activation.TANH,
    "ReLU": Activation.RELU,
    "GELU": Activation.GELU,
    "SiLU": Activation.SILU,
}
_INPUT, _OUTPUT, _SENTENCE = "module_input_name", "module_output_name", "sentence_embedding"


def modules_of(arrays: Mapping[str, Array], width: int) -> list[Module]:
    """The modules behind the encoder, whose vectors have that width; empty where the folder has
    none. Raises LoadError for modules that cannot be built.
    """
    entries = _entries(arrays)
    if entries and (_kind(entries[0]) != _TRANSFORMER or entries[0].get("path")):
        raise unsupported_error(
            f"folders whose {MODULES} does not begin with a Transformer in the folder itself", _SAVE
        )
    modules: list[Module] = []
    for entry in entries[1:]:
        module, width = _module(arrays, entry, width)
        modules.append(module)
    if modules and not isinstance(modules[0], Pooling):
        raise unsupported_error("sentence encoders without a Pooling behind the Transformer", _SAVE)
    return modules


def _entries(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    if MODULES not in arrays:
        return []
    try:
        entries = json.loads(arrays[MODULES].tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise unusable(f"{MODULES} is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise unusable(f"{MODULES} must be a JSON list of objects")
    return entries


def _kind(entry: Mapping[str, Any]) -> str:
    return str(entry.get("type", "")).rsplit(".", 1)[-1]


def _module(
    arrays: Mapping[str, Array], entry: Mapping[str, Any], width: int
) -> tuple[Module, int]:
    """A module of vectors of that width, and the width of its result."""
    kind, path = _kind(entry), str(entry.get("path", ""))
    name = f"{path}/{CONFIG}"
    config = Config(document(name, arrays[name]) if name in arrays else {})
    _require_sentence(config, name)
    if kind == "Normalize":
        return Normalize(), width
    if name not in arrays:
        raise unusable(f"the folder has no {name}")
    if kind == "Pooling":
        modes = _modes(config, name)
        return Pooling(modes), width * len(modes)
    if kind != "Dense":
        raise unsupported_error(f"sentence encoders with the module {kind[:40]!r}", _SAVE)
    dense = _dense(arrays, config, path, width)
    return dense, dense.linear.columns


def _require_sentence(config: Config, name: str) -> None:
    for setting in (_INPUT, _OUTPUT):
        if config.get(setting, _SENTENCE) != _SENTENCE:
            raise unsupported_error(f"modules whose {setting} in {name} is another", _SAVE)


def _modes(config: Config, name: str) -> tuple[Mode, ...]:
    if not config.flag("include_prompt", True):
        raise unsupported_error(
            "sentence encoders that leave the prompt out of their pooling (include_prompt)", _SAVE
        )
    value = config.get("pooling_mode")
    if value is None:
        modes = [mode for key, mode in _LEGACY.items() if config.flag(key)]
        return tuple(modes) or (Mode.MEAN,)
    values = value if isinstance(value, list) else [value]
    if not values or any(one not in [*Mode] for one in values):
        raise unsupported_error(f"the pooling_mode {str(value)[:40]!r} of {name}", _SAVE)
    return tuple(Mode(one) for one in values)


def _dense(arrays: Mapping[str, Array], config: Config, path: str, width: int) -> Dense:
    file = f"{path}/{WEIGHTS}"
    if file not in arrays:
        raise unusable(f"the folder has no {file}")
    if config.flag("use_residual"):
        raise unsupported_error("sentence encoders whose Dense has a residual", _SAVE)
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    short = activation.rsplit(".", 1)[-1]
    if short not in _ACTIVATIONS or not activation.startswith("torch.nn.modules."):
        raise unsupported_error(f"a Dense with the activation {activation[:60]!r}", _SAVE)
    tensors = Tensors(tensors_of([(file, arrays[file])]))
    columns = config.count("out_features")
    matrix = Named(f"{path}.linear", tensors.floats("linear.weight", (columns, width)))
    bias = None
    if "linear.bias" in tensors:
        bias = Named(f"{path}.bias", tensors.floats("linear.bias", (columns,)))
    tensors.require_all_read([], ())
    return Dense(Linear(matrix, bias), _ACTIVATIONS[short])
