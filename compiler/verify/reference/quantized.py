"""The references of a library that quantizes: the model with the same quantized weights, operands
or caches.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.ir.weights import WeightQuantization
from compiler.verify.reference.onnx import save_model
from relaxd.contract.options import CacheForm

if TYPE_CHECKING:
    from compiler.ir.onnx.quantize.matmuls import MatmulQuantization
    from relaxd.contract.narrow import QuantizedLayers

_OF_ITSELF = 0.25
"""The share of a perturbation by which numbers are moved that have no row: one may be smaller than
the greatest of a row.
"""


def with_quantized_weights(
    model: Path, roundings: Mapping[bytes, WeightQuantization], scratch: Path
) -> Path:
    """A copy of the ONNX model in the file, in the folder; the file itself where there is nothing
    to round.
    """
    # It is imported where a library has been compiled, with TVM: a model that cannot be read fails
    # before that.
    from compiler.ir.onnx.model.weights import quantize_weights

    if not roundings:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    quantize_weights(loaded.proto, roundings)
    return save_model(loaded.proto, scratch, "rounded")


def with_operands(
    model: Path,
    labels: Collection[str],
    scratch: Path,
    perturbation: float = 0.0,
    name: str = "rounded",
) -> Path:
    """`with_quantized_weights`, for the operands of those nodes; perturbation: `nudge` of
    `compiler.ir.onnx.quantize.matmuls`.
    """
    from compiler.ir.onnx.quantize.matmuls import cast_operands

    if not labels:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    return save_model(cast_operands(loaded.proto, labels, perturbation), scratch, name)


def with_stored_caches(
    model: Path,
    outputs: Collection[str],
    consts: Mapping[str, Any],
    form: CacheForm,
    perturbations: Sequence[float],
    scratch: Path,
) -> list[Path]:
    """Copies of the ONNX model in the file, in the folder, one for each perturbation: the caches
    that come out as `outputs` are quantized (`stored_caches`).
    """
    import onnx

    from compiler.ir.onnx.quantize.kv_cache import quantize_caches

    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    # All copies read the weights from one file.
    onnx.save_model(
        loaded.proto, scratch / "passed.onnx", save_as_external_data=True, location="passed.data"
    )
    paths = []
    for number, perturbation in enumerate(perturbations):
        copy = quantize_caches(loaded.proto, outputs, consts, form, perturbation)
        paths.append(scratch / f"stored{number}.onnx")
        paths[-1].write_bytes(copy.SerializeToString())
    return paths


def with_quantized_rows(
    model: Path,
    quantized: "QuantizedLayers",
    chosen: "MatmulQuantization",
    perturbations: Sequence[float],
    scratch: Path,
) -> list[Path]:
    """Copies of the ONNX model in the file, in the folder: one whose matmuls by weights in blocks
    round nothing, and for each perturbation one that rounds what those nodes multiply
    (`block_products`).
    Of a model without such blocks, the file itself and copies that round products by floats
    (`row_products`) as was chosen, and the operands of others to bfloat16.
    """
    import onnx

    from compiler.ir.onnx.quantize.block_matmuls import has_blocks, quantize_rows, set_level
    from compiler.ir.onnx.quantize.matmuls import cast_operands
    from compiler.ir.onnx.quantize.row_matmuls import RowMatmuls

    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    if not has_blocks(loaded.proto):
        matmuls = RowMatmuls(loaded.proto, chosen.scales, chosen.grids)
        paths = [model]
        for number, perturbation in enumerate(perturbations):
            copy = matmuls.quantize(perturbation, quantized.layers)
            if quantized.bfloat16:
                copy = cast_operands(copy, quantized.bfloat16, perturbation * _OF_ITSELF)
            paths.append(save_model(copy, scratch, f"rows{number}"))
        return paths
    set_level(loaded.proto, 0)
    # All copies read the weights from one file.
    paths = [scratch / "plain.onnx"]
    onnx.save_model(loaded.proto, paths[0], save_as_external_data=True, location="plain.data")
    bare = loaded.proto.SerializeToString()
    for number, perturbation in enumerate(perturbations):
        copy = onnx.ModelProto.FromString(bare)
        quantize_rows(copy, perturbation, quantized.layers)
        paths.append(scratch / f"rows{number}.onnx")
        paths[-1].write_bytes(copy.SerializeToString())
    return paths
