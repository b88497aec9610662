"""Column types that clean what they store, so that SQLite and PostgreSQL take equal values."""

from typing import Any

from sqlalchemy import JSON, Dialect, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from relaxd.contract.text import clean, sanitize


class Text(TypeDecorator[str]):
    """A text of anyone's: a model's, a client's, a compiler's."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text without what PostgreSQL refuses."""
        return None if value is None else clean(value)


class Document(TypeDecorator[Any]):
    """A JSON document; None is NULL."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """JSONB on PostgreSQL."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(JSONB(none_as_null=True))
        return dialect.type_descriptor(JSON(none_as_null=True))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """The document without what JSONB refuses."""
        return sanitize(value)
