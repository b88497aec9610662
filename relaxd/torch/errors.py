"""Errors of exporting."""

from typing import Any

from relaxd.errors import RelaxdError

OLDEST = (2, 8)
"""The first torch that writes the archives that relaxd reads."""


class ExportError(RelaxdError):
    """A module cannot be exported with its dims; `source` is the user's line at fault, as
    `net.py:12`, and `dims` names those that it fixes or relates.
    """

    code = "export.failed"


class TorchMissing(RelaxdError):
    """torch is not installed, or too old."""

    code = "export.torch_missing"


def load_torch() -> Any:
    """The torch package; raises TorchMissing."""
    try:
        import torch
    except ImportError as error:
        raise TorchMissing(
            "exporting a module needs torch, which is not installed here",
            hint="run it where the module runs, or pip install torch",
        ) from error
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST:
        raise TorchMissing(
            f"torch {torch.__version__} is too old to export for relaxd",
            hint="pip install 'torch>=2.8'",
        )
    return torch
