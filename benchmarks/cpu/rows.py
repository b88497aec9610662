"""The rows of the table: each model with the dim values it is timed at."""

from collections.abc import Mapping

from benchmarks.cpu.models import CASES
from tests.zoo.case import sizes

Point = Mapping[str, int]

ROWS: dict[str, tuple[Point, ...]] = {
    "minilm": sizes("batch seq", (1, 7), (1, 16), (1, 128), (8, 64), (1, 500)),
    "resnet50": sizes("batch", (1,), (4,)),
    "ppocr_det": sizes("n h w", (1, 320, 320), (1, 640, 480), (1, 1280, 960)),
    "ppocr_rec": sizes("n w", (1, 100), (1, 320), (6, 320)),
    "ppocr_cls": sizes("n h w", (1, 48, 192)),
    "magika": sizes("batch", (1,), (8,)),
    "silero_vad_16k_op15": sizes("batch sequence", (1, 576), (8, 576)),
    "vit_s": sizes("batch", (1,), (4,)),
    "gpt2": sizes("batch seq past", (1, 128, 0), (1, 1, 128), (1, 1, 1000)),
    **{case.name: case.points for case in CASES.values()},
    "ppocr6_det": sizes("n h w", (1, 320, 320), (1, 160, 320)),
    "ppocr6_rec": sizes("n w", (1, 160), (1, 320), (4, 320)),
    "ddddocr": sizes("w", (160,), (320,)),
    "nudenet": sizes("batch height width", (1, 320, 320), (1, 224, 320)),
    "layout_cdla": sizes("n", (1,)),
    "orientation": sizes("n", (1,), (4,)),
    "dnsmos": sizes("n", (1,)),
    "plcmos": sizes("batch_size frames", (2, 300)),
    "aecmos_1663915512": sizes("batch_size frames", (1, 300)),
    "basic_pitch": sizes("n", (1,)),
    "wake_embedding": sizes("n", (1,), (8,)),
    "silero_vad_v6": sizes("n", (1,), (31,)),
    "tashkeel": sizes("batch seq", (1, 61)),
}
"""By what `benchmarks.cpu.subjects` finds: models of `tests.support.models.known`, this benchmark's
own, and the zoo's by their keys.
"""


def label(model: str, point: Point) -> str:
    """One row's name, such as `minilm batch=1 seq=7`."""
    return " ".join([model, *(f"{dim}={value}" for dim, value in point.items())])
