"""Texts to tokens, by the tokenizers library."""

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from relaxd.loader.strings.registry import Array, Run, explain_lack, list_of, operator, value_of

PACKAGE = "tokenizers"
_PARTS = {
    "ids": attrgetter("ids"),
    "mask": attrgetter("attention_mask"),
}


@operator("encode")
def _encode(attributes: Mapping[str, Any]) -> Run:
    """Strings [n] to int64 tokens and masks [n, tokens], as `outputs` names them.

    tokenizer: a document as `tokenizer.json` is, with the padding of shorter rows.
    """
    parts = [_PARTS[name] for name in list_of(attributes, "outputs", str)]
    tokenizer = _load(json.dumps(value_of(attributes, "tokenizer", dict)))

    def run(x: Array) -> tuple[Array, ...]:
        texts = x.reshape(-1).tolist()
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        width = len(encodings[0].ids) if encodings else 0
        shape = (len(texts), width)
        rows = ([part(encoding) for encoding in encodings] for part in parts)
        return tuple(np.array(row, np.int64).reshape(shape) for row in rows)

    return run


def _load(document: str) -> Any:
    """The library's tokenizer; raises LoadContractError where it is not installed."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        otherwise = "; or give the model's tokens in place of its texts"
        raise explain_lack("the tokenizer of the model's texts", PACKAGE, otherwise) from error
    try:
        return Tokenizer.from_str(document)
    # It raises plain exceptions of its own.
    except Exception as error:
        raise ValueError(f"{PACKAGE} cannot read it: {error}") from error
