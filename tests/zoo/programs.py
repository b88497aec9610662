"""Models of the zoo saved as `.pt2` with their dims, beside the module itself: by
torch.export.save, and some by `relaxd export tests.zoo.programs:NAME`.
"""

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.models.known import cache
from tests.zoo.case import Case, Exporter, Feed, key_of
from tests.zoo.exporting import ROOT, Export, ExportError
from tests.zoo.vision import BATCHES

if TYPE_CHECKING:
    from torch import nn

MODELS = (
    *("bert", "distilbert", "roberta", "albert", "electra", "mpnet", "nomic_bert", "roformer"),
    *("esm", "fnet", "gpt2", "llama", "bart", "marian", "clip"),
    *("vit", "vit_interpolated", "convnext", "segformer", "deit", "beit", "swin", "swinv2"),
    *("dpt", "hiera", "hubert", "data2vec_audio", "ast", "message_passing", "graph_attention"),
    *("timm_mobilenetv3", "timm_mobilenetv4", "timm_efficientnet_lite", "timm_resnetv2"),
    *("timm_byobnet", "timm_convnext", "timm_ghostnet", "timm_res2net", "timm_vit", "timm_mixer"),
    *("timm_convmixer", "timm_edgenext", "tv_shufflenet", "tv_mnasnet", "tv_squeezenet"),
    *("tv_googlenet", "tv_regnet", "tv_lraspp"),
    *("audio_wav2vec2", "audio_wavlm", "audio_conv_tasnet", "audio_mel", "audio_mfcc"),
    *("audio_wav2letter", "audio_wavernn"),
)
NAMED = (
    *("bert", "distilbert", "roberta", "electra", "mpnet", "llama", "clip", "vit", "convnext"),
    *("segformer", "deit", "graph_attention", "timm_convmixer", "tv_squeezenet"),
    *("audio_deepspeech", "audio_mel"),
)
"""Those that `relaxd export` saves: a time axis of audio_deepspeech is one that torch fixes."""


@dataclass(frozen=True)
class Saved:
    """The `.pt2` of the program of an export, and beside it inputs at the points of the case and
    what the module makes of them.
    """

    source: Export
    key: str

    def __call__(self) -> Path:
        """The file, made on first use in a process of its own; raises ExportError."""
        digest = self.source.content(Path(__file__), Path(__file__).with_name("saving.py"))
        folder = cache() / "zoo" / f"{self.key}-{digest[:12]}"
        path = folder / "model.pt2"
        if path.exists():
            return path
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.zoo.saving", self.key, str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExportError(done.stderr.strip()[-3000:] or f"exit status {done.returncode}")
        return path


def cases(exported: Iterable[Case]) -> Iterator[Case]:
    """The cases of programs, from those that torch exports as ONNX."""
    chosen = {case.name: case for case in exported if isinstance(case.export, Export)}
    for exporter, names in ((Exporter.PT2, MODELS), (Exporter.RELAXD, NAMED)):
        for name in names:
            case = _enlarge(chosen[name])
            assert isinstance(case.export, Export)
            saved = Saved(case.export, f"{name}-{exporter.value}")
            yield dataclasses.replace(case, export=saved, exporter=exporter)


_LEAST = {"height": 64, "width": 64, "samples": 720}
_LEAST_BY_NAME = {"vit_interpolated": {"height": 72, "width": 72}}
_SIDED = ("timm_byobnet", "timm_edgenext", "timm_resnetv2", "tv_googlenet", "tv_squeezenet")
"""torch.export finds guards on the sides of their images, or fails on them: those are fixed."""


def _enlarge(case: Case) -> Case:
    """The case with images of at least 64 pixels, or of one size, sounds of at least 720 samples,
    and no empty axes: torch.export takes axes of 0 and 1 for constants, as feature maps of 32
    pixels and frames of 400 samples become. Where images are of the size of the model's positions,
    a program that interpolates them refuses them.
    """
    if case.name in _SIDED:
        return dataclasses.replace(case, dims={"batch": "1:8"}, points=BATCHES)
    leasts = dict.fromkeys(case.dims, 1) | _LEAST | _LEAST_BY_NAME.get(case.name, {})
    points = tuple(
        {name: max(size, leasts[name]) for name, size in point.items()} for point in case.points
    )
    dims = {name: _raise_least(text, leasts[name]) for name, text in case.dims.items()}
    return dataclasses.replace(case, dims=dims, points=points)


def _raise_least(dim: str, least: int) -> str:
    """The range `LOW:HIGH`, perhaps `%MULTIPLE`, from `least` on, if it begins below."""
    low, colon, rest = dim.partition(":")
    return f"{least}:{rest}" if colon and int(low) < least else dim


def read_points(path: Path, part: str) -> list[Feed]:
    """`feeds` or `outputs` of a saved program, a mapping for each point."""
    points: dict[str, Feed] = {}
    with np.load(path.with_name(f"{part}.npz")) as arrays:
        for key in arrays:
            index, _, name = key.partition(".")
            points.setdefault(index, {})[name] = arrays[key]
    return list(points.values())


def _make(name: str) -> "tuple[nn.Module, tuple[Any, ...]]":
    import torch

    from tests.zoo.cases import CASES
    from tests.zoo.weights import import_hubs

    import_hubs()
    torch.manual_seed(0)
    exporter = Exporter.PT2 if name in MODELS else Exporter.RELAXD
    saved: Any = CASES[key_of(name, exporter)].export
    program = saved.source.make()
    return program.module.eval(), program.args


def __getattr__(name: str) -> "Callable[[], tuple[nn.Module, tuple[Any, ...]]]":
    """A model by its name: the function that makes it with its example."""
    if name not in (*MODELS, *NAMED):
        raise AttributeError(f"no model is called {name!r}")
    return partial(_make, name)
