"""The settings that config.json states of a model, checked as they are read."""

import json
from collections.abc import Mapping
from typing import Any

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array

_MOST_BYTES = 16 << 20
_MOST = (1 << 24) - 1
_EXPORT = "export the model to ONNX, as with onnxruntime-genai's builder"


def document(name: str, data: Array, most: int = _MOST_BYTES) -> dict[str, Any]:
    """The JSON object that a file holds; raises LoadError."""
    try:
        if len(data) > most:
            raise ValueError(f"it has {len(data)} bytes")
        content = json.loads(data.tobytes().decode())
        # Half of a pair of UTF-16 can be written as JSON, and as no text.
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise unusable(f"{name} is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(content, dict):
        raise unusable(f"{name} must be a JSON object")
    return content


class Config:
    """Settings by name; what `null` or nothing states has the default. Raises LoadError for values
    of another kind.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of any type, the default where it is missing or null."""
        value = self.settings.get(name)
        return default if value is None else value

    def count(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number from 1 to `most`."""
        value = self.get(name, default)
        if type(value) is not int or not 0 < value <= most:
            raise unusable(f"config.json states no usable {name}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise unusable(f"config.json states no usable {name}")
        return float(value)

    def maybe(self, name: str) -> float | None:
        """A finite number above 0, None where there is none."""
        return None if self.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise unusable(f"config.json states no usable {name}")
        return value

    def each(self, name: str, count: int) -> list[Any] | None:
        """A list with one entry for each layer, None where there is none."""
        value = self.get(name)
        if value is not None and (not isinstance(value, list) or len(value) != count):
            raise unusable(f"config.json states no usable {name} for {count} layers")
        return value

    def table(self, name: str) -> "Config":
        """An object, empty where there is none."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise unusable(f"config.json states no usable {name}")
        return Config(value)


def unusable(message: str) -> LoadError:
    """A folder that contradicts itself or is incomplete."""
    return LoadError(message, reason="folder", field="model", hint="fetch the folder again")


def unsupported_error(what: str, hint: str = _EXPORT) -> LoadError:
    """A decoder that is none of those that can be built."""
    return LoadError(
        f"{what} are not supported", reason="folder_architecture", field="model", hint=hint
    )
