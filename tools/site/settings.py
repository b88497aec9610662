"""The reference of the service's settings, from their declarations."""

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service.settings import Settings
from tools.site.tables import table

PREFIX = str(Settings.model_config["env_prefix"])
DEFAULT_DATA_DIR = "~/.local/share/relaxd"


def page() -> str:
    """Every setting with its variable, default, bounds and meaning."""
    rows = [
        (f"`{PREFIX}{name.upper()}`", _default(one), f"{one.description} {_bounds(one)}")
        for name, one in Settings.model_fields.items()
    ]
    return "\n".join(
        (
            "# Settings",
            "",
            "The service reads them from its environment, when it starts. What has no URL lies "
            "under `RELAXD_DATA_DIR`. An operator's view of them is in "
            "[operations](../howto/run-the-service.md).",
            "",
            table(("variable", "default", ""), rows),
        )
    )


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return f"`{DEFAULT_DATA_DIR}`"
    plain: Any = None if field.default is PydanticUndefined else field.default
    return "none" if plain in (None, "") else f"`{plain}`"


def _bounds(field: FieldInfo) -> str:
    words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    results = [
        f"{word} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, word in words.items()
        if hasattr(limit, name)
    ]
    return f"({', '.join(results)})" if results else ""
