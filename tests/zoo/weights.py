"""Random weights of models that packages make, and what the packages lack here."""

import importlib
import importlib.util
import sys
import types
from typing import Any

import torch
from torch import Tensor, nn

_ODD = 0.1
"""The deviation of biases and scales about what their layers begin with: zeros and ones, or a scale
of 1e-6 that would hide its layer.
"""


def keep_signals(module: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Draw every weight by the inputs of its layer, and batch norms' statistics from an example, so
    that no layer's part vanishes or grows.
    """
    with torch.no_grad():
        for weight in module.parameters():
            _draw(weight)
        for name, buffer in module.named_buffers():
            if name.rpartition(".")[2] in ("embed", "embed_sum"):
                buffer.normal_()
        _observe(module, args)


def _draw(weight: Tensor) -> None:
    if weight.ndim > 1:
        inputs = weight.shape[-1] if weight.shape[0] == 1 else weight[0].numel()
        weight.normal_(0.0, max(inputs, 1) ** -0.5)
    elif weight.ndim == 1:
        weight.add_(torch.randn_like(weight), alpha=_ODD)


def _observe(module: nn.Module, args: tuple[Tensor, ...]) -> None:
    norms = [
        layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ]
    for norm in norms:
        norm.momentum = None
        norm.train()
    if norms:
        module(*args)
    for norm in norms:
        norm.eval()


def import_hubs() -> None:
    """Import torchvision and torchaudio where they are installed: transformers and timm import them
    too. Their common wheels have libraries that do not load without CUDA.
    """
    if importlib.util.find_spec("torchvision"):
        _import_torchvision()
    if importlib.util.find_spec("torchaudio"):
        _import_torchaudio()


def _import_torchvision() -> None:
    """The operators that the import misses are declared, for models that call none of them."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        _forget("torchvision")
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
        importlib.import_module("torchvision")


def _import_torchaudio() -> None:
    """torchaudio has a form without its library, which it takes where there is no such file."""
    try:
        importlib.import_module("torchaudio")
    except OSError:
        _forget("torchaudio")
        extension: Any = types.ModuleType("torchaudio._extension")
        extension._IS_TORCHAUDIO_EXT_AVAILABLE = extension._IS_ALIGN_AVAILABLE = False
        extension.fail_if_no_align = lambda function: function
        sys.modules[extension.__name__] = extension
        importlib.import_module("torchaudio")


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
