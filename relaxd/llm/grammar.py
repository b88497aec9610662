"""Grammars of constrained decoding: a JSON schema, a regular expression or a grammar."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relaxd.errors import InputError

MAX_DEFINITION = 256 << 10


class Syntax(StrEnum):
    """How a definition is written: as a JSON schema, as a regular expression of Rust's `regex`
    crate without look-around, or as a context-free grammar in Lark's notation.
    """

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True)
class Grammar:
    """A definition in its syntax; a schema as JSON text."""

    syntax: Syntax
    definition: str

    def __post_init__(self) -> None:
        if len(self.definition) > MAX_DEFINITION:
            raise InputError(f"the grammar has more than {MAX_DEFINITION >> 10} KiB")

    @classmethod
    def schema(cls, schema: Mapping[str, Any] | bool) -> "Grammar":
        """JSON text that a schema describes."""
        return cls(Syntax.JSON_SCHEMA, json.dumps(schema))

    @classmethod
    def json_object(cls) -> "Grammar":
        """The JSON text of any object."""
        return cls.schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> "Grammar":
        """Text that a regular expression matches as a whole."""
        return cls(Syntax.REGEX, pattern)

    @classmethod
    def lark(cls, definition: str) -> "Grammar":
        """Text that the rule `start` of a grammar derives."""
        return cls(Syntax.LARK, definition)
