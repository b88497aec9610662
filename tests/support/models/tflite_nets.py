"""Small TFLite networks of several operators."""

import numpy as np

from tests.support.models.tflite_files import Op, T, encode


def _q(name: str, shape: tuple[int, ...], scale: float, zero: int = 0) -> T:
    return T(name, shape, "int8", scale=scale, zero=zero)


def image_net(height: int = 9) -> bytes:
    """Int8 images [batch, height, 8, 3] by a convolution, a depthwise one, a sum, a mean, a dense
    layer and softmax.
    """
    rng = np.random.default_rng(0)
    window = {"stride_w": 1, "stride_h": 1, "activation": 1}
    image, wide = (-1, height, 8, 3), (-1, height, 8, 16)
    scales = rng.uniform(0.002, 0.008, 16)
    return encode(
        [
            _q("image", image, 0.03, -5),
            T("w0", (16, 3, 3, 3), "int8", rng.integers(-127, 128, (16, 3, 3, 3)), scales),
            T("b0", (16,), "int32", rng.integers(-900, 900, 16), 0.03 * scales),
            _q("x0", wide, 0.05, -128),
            T("w1", (1, 3, 3, 16), "int8", rng.integers(-127, 128, (1, 3, 3, 16)), scales, 0, 3),
            T("b1", (16,), "int32", rng.integers(-900, 900, 16), 0.05 * scales),
            _q("x1", wide, 0.06, -128),
            _q("x2", wide, 0.09, -120),
            T("axes", (2,), "int32", [1, 2]),
            _q("x3", (-1, 16), 0.04, -100),
            T("w4", (5, 16), "int8", rng.integers(-127, 128, (5, 16)), 0.002),
            T("b4", (5,), "int32", rng.integers(-900, 900, 5), 0.00008),
            _q("x4", (-1, 5), 0.02, 2),
            _q("shares", (-1, 5), 1 / 256, -128),
        ],
        [
            Op("CONV_2D", ["image", "w0", "b0"], ["x0"], window, 3),
            Op(
                "DEPTHWISE_CONV_2D",
                ["x0", "w1", "b1"],
                ["x1"],
                {**window, "depth_multiplier": 1},
                3,
            ),
            Op("ADD", ["x0", "x1"], ["x2"], {}, 2),
            Op("MEAN", ["x2", "axes"], ["x3"], {}, 2),
            Op("FULLY_CONNECTED", ["x3", "w4", "b4"], ["x4"], {}, 4),
            Op("SOFTMAX", ["x4"], ["shares"], {"beta": 1.0}, 2),
        ],
        ["image"],
        ["shares"],
    )


def memory_net() -> bytes:
    """The newest 4 rows of what it was called with, from a variable of 3, which starts as -7."""
    rows = [T("handle", (), "resource"), _q("start", (1, 3, 2), 0.1, -7)]
    filled = T("start", (1, 3, 2), "int8", np.full((1, 3, 2), -7), 0.1, -7)
    numbers = [
        T(n, (3,), "int32", v) for n, v in (("b", [0, 1, 0]), ("e", [0, 4, 0]), ("s", [1, 1, 1]))
    ]
    masks = {"begin_mask": 5, "end_mask": 5}
    handle = Op("VAR_HANDLE", [], ["handle"], {"shared_name": "rows"})
    return encode(
        [
            rows[0],
            _q("row", (1, 1, 2), 0.1, -7),
            _q("old", (1, 3, 2), 0.1, -7),
            _q("all", (1, 4, 2), 0.1, -7),
            _q("new", (1, 3, 2), 0.1, -7),
            *numbers,
        ],
        [
            Op("CALL_ONCE", [], [], {"subgraph": 1}),
            handle,
            Op("READ_VARIABLE", ["handle"], ["old"]),
            Op("CONCATENATION", ["old", "row"], ["all"], {"axis": 1}, 2),
            Op("STRIDED_SLICE", ["all", "b", "e", "s"], ["new"], masks, 2),
            Op("ASSIGN_VARIABLE", ["handle", "new"], []),
        ],
        ["row"],
        ["all"],
        ([rows[0], filled], [handle, Op("ASSIGN_VARIABLE", ["handle", "start"], [])]),
    )
