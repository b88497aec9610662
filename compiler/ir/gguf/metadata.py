"""The settings that a GGUF file states of its architecture, checked as they are read."""

from collections.abc import Mapping
from typing import Any

from compiler.errors import LoadError

_MOST = (1 << 24) - 1
_LEAST, _GREATEST = 1e-30, 1e30


class Metadata:
    """Settings by their name behind that of the architecture. Raises LoadError for values of
    another kind.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.kind = str(entries.get("general.architecture"))[:40]
        self._entries = entries

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of any type."""
        return self._entries.get(f"{self.kind}.{name}", default)

    def count(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number from 1 to `most`."""
        value = self.get(name, default)
        if type(value) is not int or not 0 < value <= most:
            raise self.unusable(name)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number above 0 that arithmetic with others leaves finite."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not _LEAST < value < _GREATEST:
            raise self.unusable(name)
        return float(value)

    def unusable(self, name: str) -> LoadError:
        """A setting that is missing or of another kind."""
        message = f"the GGUF file states no usable {self.kind}.{name}"
        return LoadError(message, reason="gguf", field="model")


def unsupported_error(what: str, known: str = "") -> LoadError:
    """A decoder that is none of those that can be built."""
    return LoadError(
        f"{what} are not supported",
        reason="gguf_architecture",
        field="model",
        hint=f"{known}export the model to ONNX, as with onnxruntime-genai's builder",
    )
