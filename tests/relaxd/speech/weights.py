"""Whisper's weights in a file of CTranslate2's, as transformers' model has them."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from transformers import WhisperForConditionalGeneration

_TYPES = ("float32", "int8", "int16", "int32", "float16")
Arrays = dict[str, np.ndarray[Any, Any]]


def read(path: Path) -> Arrays:
    """The variables of a model.bin of version 6."""
    data, index = path.read_bytes(), 0

    def take(form: str) -> Any:
        nonlocal index
        (value,) = struct.unpack_from(f"<{form}", data, index)
        index += struct.calcsize(form)
        return value

    def text() -> str:
        length = take("H")
        return str(take(f"{length}s")[:-1].decode())

    version, name, _ = take("I"), text(), take("I")
    assert (version, name) == (6, "WhisperSpec")
    results = {}
    for _ in range(take("I")):
        variable, rank = text(), take("B")
        shape = [take("I") for _ in range(rank)]
        dtype, size = np.dtype(_TYPES[take("B")]), take("I")
        values = np.frombuffer(data, dtype, size // dtype.itemsize, index)
        results[variable], index = values.reshape(shape), index + size
    return results


def whisper(variables: Mapping[str, np.ndarray[Any, Any]]) -> "WhisperForConditionalGeneration":
    """transformers' model with the weights, as float32."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    words, width = variables["decoder/embeddings/weight"].shape
    sides: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        layers = {name.split("/")[1] for name in variables if name.startswith(f"{side}/layer_")}
        sides[f"{side}_layers"] = sum(name != "layer_norm" for name in layers)
        sides[f"{side}_attention_heads"] = int(variables[f"{side}/num_heads"])
        sides[f"{side}_ffn_dim"] = len(variables[f"{side}/layer_0/ffn/linear_0/bias"])
    config = WhisperConfig(
        vocab_size=words,
        d_model=width,
        num_mel_bins=variables["encoder/conv1/weight"].shape[1],
        max_source_positions=len(variables["encoder/position_encodings/encodings"]),
        max_target_positions=len(variables["decoder/position_encodings/encodings"]),
        **sides,
    )
    model = WhisperForConditionalGeneration(config).eval()
    named = {
        name: torch.from_numpy(array.astype(np.float32))
        for name, array in _named(variables, config).items()
    }
    model.load_state_dict(named)
    return model


def _named(variables: Mapping[str, Any], config: Any) -> Arrays:
    """The variables by transformers' names; projections of one input are one variable."""
    table = variables["decoder/embeddings/weight"]
    results = {"model.decoder.embed_tokens.weight": table, "proj_out.weight": table}

    def norm(name: str, variable: str) -> None:
        results[f"{name}.weight"] = variables[f"{variable}/gamma"]
        results[f"{name}.bias"] = variables[f"{variable}/beta"]

    def linear(layer: str, names: str, variable: str) -> None:
        parts = names.split()
        for kind in ("weight", "bias"):
            split = np.split(variables[f"{variable}/{kind}"], len(parts))
            results.update({f"{layer}.{n}.{kind}": v for n, v in zip(parts, split, strict=True)})
        for name in parts:
            if name.endswith("k_proj"):
                assert not results.pop(f"{layer}.{name}.bias").any()

    for name in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            results[f"model.encoder.{name}.{kind}"] = variables[f"encoder/{name}/{kind}"]
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        positions = variables[f"{side}/position_encodings/encodings"]
        results[f"model.{side}.embed_positions.weight"] = positions
        norm(f"model.{side}.layer_norm", f"{side}/layer_norm")
        for index in range(layers):
            layer, arguments = f"model.{side}.layers.{index}", f"{side}/layer_{index}"
            own = "self_attn.q_proj self_attn.k_proj self_attn.v_proj"
            linear(layer, own, f"{arguments}/self_attention/linear_0")
            linear(layer, "self_attn.out_proj", f"{arguments}/self_attention/linear_1")
            norm(f"{layer}.self_attn_layer_norm", f"{arguments}/self_attention/layer_norm")
            linear(layer, "fc1", f"{arguments}/ffn/linear_0")
            linear(layer, "fc2", f"{arguments}/ffn/linear_1")
            norm(f"{layer}.final_layer_norm", f"{arguments}/ffn/layer_norm")
            if side == "decoder":
                crossed = "encoder_attn.k_proj encoder_attn.v_proj"
                linear(layer, "encoder_attn.q_proj", f"{arguments}/attention/linear_0")
                linear(layer, crossed, f"{arguments}/attention/linear_1")
                linear(layer, "encoder_attn.out_proj", f"{arguments}/attention/linear_2")
                norm(f"{layer}.encoder_attn_layer_norm", f"{arguments}/attention/layer_norm")
    return results
