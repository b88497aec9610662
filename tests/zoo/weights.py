"""Random weights of models that packages make, and what the packages lack here."""

import importlib
import sys

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


def import_torchvision() -> None:
    """Import torchvision, which transformers and timm import too. Its common wheel has a library
    that does not load without CUDA; the operators that the import then misses are declared, for
    models that call none of them.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
        importlib.import_module("torchvision")
