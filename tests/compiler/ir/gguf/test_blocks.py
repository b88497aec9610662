"""Blocks of GGUF files, beside what each number means by itself."""

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Quantized, dequantize
from compiler.ir.gguf.blocks import tensor_of
from compiler.ir.gguf.file import Stored
from tests.support.models import gguf_blocks

FORMS = {
    gguf_blocks.Q5_0: (8, 32, False),
    gguf_blocks.Q5_1: None,
    gguf_blocks.Q4_K: (4, 32, True),
    gguf_blocks.Q5_K: None,
    gguf_blocks.Q6_K: (8, 16, False),
}
"""Bits, numbers in a block and whether there are zero points; None of what becomes float32."""


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("shape", [(1, 512), (3, 256), (7, 768)])
def test_numbers_stay_as_they_are(kind: int, shape: tuple[int, int]) -> None:
    data = gguf_blocks.draw_blocks(kind, shape[0] * shape[1], 1.5, seed=shape[0])
    tensor = tensor_of("x", Stored(kind, shape, np.frombuffer(data, np.uint8)))
    form = (
        (tensor.bits, tensor.block, tensor.zeros is not None)
        if isinstance(tensor, Quantized)
        else None
    )
    assert form == FORMS[kind]
    want = np.array(gguf_blocks.dequantize_blocks(data, kind)).reshape(shape)
    # A scale times its scale is rounded once to float32, and so is a least value over a scale.
    assert np.abs(dequantize(tensor) - want).max() < 3e-7 * np.abs(want).max()


def test_bfloat16() -> None:
    values = np.array([[1.5, -2.0], [0.0, 3.0]], np.float32)
    data = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8).ravel()
    np.testing.assert_array_equal(tensor_of("x", Stored(30, (2, 2), data)), values)


@pytest.mark.parametrize(
    ("kind", "shape"), [(12, (2, 128)), (14, (512,)), (10, (1, 256)), (6, (4, 48))]
)
def test_shapes_and_formats_that_are_refused(kind: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(LoadError, match="'x' has the format") as caught:
        tensor_of("x", Stored(kind, shape, np.zeros(1 << 12, np.uint8)))
    assert caught.value.code == "load.gguf_format"
