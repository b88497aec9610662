"""The compiler: a model and its declarations in, a bundle out. Importing this package imports
neither TVM nor onnx.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.api import compile_model as compile_model

__all__ = ["compile_model"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the compile process can confine itself before it loads
    anything.
    """
    if name != "compile_model":
        raise AttributeError(f"module 'compiler' has no attribute {name!r}")
    from compiler.api import compile_model

    return compile_model
