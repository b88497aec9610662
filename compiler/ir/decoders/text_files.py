"""Files that serving takes beside the library of a language model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class TextFiles:
    """documents: by file name, as Hugging Face's libraries read them; left_out: why one is
    missing.
    """

    documents: Mapping[str, Document] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
