"""Exports PyTorch modules with declared dims, on the user's machine; needs torch.

`relaxd.torch.export(module, example, inputs={"x": "float32[batch,8]"}, dims={"batch": (1, 64)},
output="m.pt2")` is what `relaxd export MODULE:FUNCTION` does.
"""

from relaxd.torch.attempts import Form
from relaxd.torch.errors import ExportError
from relaxd.torch.exporting import Exported, export

__all__ = ["ExportError", "Exported", "Form", "export"]
