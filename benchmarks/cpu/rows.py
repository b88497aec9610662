"""The rows of the table: each model with the dim values it is timed at."""

from collections.abc import Mapping

Point = Mapping[str, int]

ROWS: dict[str, tuple[Point, ...]] = {
    "minilm": tuple(
        {"batch": batch, "seq": seq}
        for batch, seq in ((1, 7), (1, 16), (1, 128), (8, 64), (1, 500))
    ),
    "resnet50": ({"batch": 1}, {"batch": 4}),
    "ppocr_det": tuple({"n": 1, "h": h, "w": w} for h, w in ((320, 320), (640, 480), (1280, 960))),
    "ppocr_rec": ({"n": 1, "w": 100}, {"n": 1, "w": 320}, {"n": 6, "w": 320}),
    "ppocr_cls": ({"n": 1, "h": 48, "w": 192},),
    "magika": ({"batch": 1}, {"batch": 8}),
    "silero_vad_16k_op15": ({"batch": 1, "sequence": 576}, {"batch": 8, "sequence": 576}),
    "vit_s": ({"batch": 1}, {"batch": 4}),
    "gpt2": tuple(
        {"batch": 1, "seq": seq, "past": past} for seq, past in ((128, 0), (1, 128), (1, 1000))
    ),
}


def label(model: str, point: Point) -> str:
    """One row's name, such as `minilm batch=1 seq=7`."""
    return " ".join([model, *(f"{dim}={value}" for dim, value in point.items())])
