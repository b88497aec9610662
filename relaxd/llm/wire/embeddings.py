"""Requests for vectors and scores of texts, and their answers: embeddings as OpenAI has them, and
reranking as Cohere and Jina do.
"""

import base64
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.errors import InputError
from relaxd.llm.wire.documents import read_field, read_object

_MOST_TEXTS = 2048
Array = np.ndarray[Any, Any]
Document = dict[str, Any]


@dataclass(frozen=True)
class EmbeddingsAsked:
    """Texts, or their tokens; size: how many of a vector's first values are wanted."""

    inputs: tuple[str | list[int], ...]
    size: int | None
    as_bytes: bool

    def answer(self, model: str, vectors: Sequence[Array], tokens: int) -> Document:
        """OpenAI's document of vectors."""
        data = [
            {"object": "embedding", "index": index, "embedding": self._write(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": model, "data": data, "usage": usage}

    def _write(self, vector: Array) -> str | list[float]:
        if self.size is not None:
            vector = vector[: self.size]
        values = normalize(vector).astype("<f4")
        return base64.b64encode(values.tobytes()).decode() if self.as_bytes else values.tolist()


@dataclass(frozen=True)
class RerankAsked:
    """Documents that are ordered by how well they answer a query; top: how many are wanted."""

    query: str
    documents: tuple[str, ...]
    top: int
    with_documents: bool

    def answer(self, model: str, scores: Sequence[float], tokens: int) -> Document:
        """The document that clients of Cohere and of Jina read."""
        order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
        return {
            "id": f"rerank-{uuid.uuid4().hex}",
            "model": model,
            "results": [self._result(index, scores[index]) for index in order[: self.top]],
            "usage": {"total_tokens": tokens},
            "meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": tokens}},
        }

    def _result(self, index: int, score: float) -> Document:
        result: Document = {"index": index, "relevance_score": score}
        return result | (
            {"document": {"text": self.documents[index]}} if self.with_documents else {}
        )


def read_embeddings(document: Any) -> EmbeddingsAsked:
    """Read a request for vectors; raises InputError."""
    fields = read_object(document)
    size = read_field(fields, "dimensions", int)
    if size is not None and size < 1:
        raise InputError("dimensions must be at least 1", field="dimensions")
    form = read_field(fields, "encoding_format", str)
    if form not in (None, "float", "base64"):
        raise InputError("encoding_format must be float or base64", field="encoding_format")
    return EmbeddingsAsked(_inputs(fields.get("input")), size, form == "base64")


def read_reranking(document: Any) -> RerankAsked:
    """Read a request for an order of documents; raises InputError."""
    fields = read_object(document)
    query = read_field(fields, "query", str)
    if not query:
        raise InputError("a query is needed", field="query")
    documents = read_field(fields, "documents", list)
    if not documents or len(documents) > _MOST_TEXTS:
        raise InputError(f"documents must be 1 to {_MOST_TEXTS} texts", field="documents")
    top = read_field(fields, "top_n", int)
    if top is not None and top < 1:
        raise InputError("top_n must be at least 1", field="top_n")
    return RerankAsked(
        query,
        tuple(map(_text, documents)),
        len(documents) if top is None else top,
        read_field(fields, "return_documents", bool) is not False,
    )


def _inputs(value: Any) -> tuple[str | list[int], ...]:
    several = isinstance(value, list) and value and isinstance(value[0], str | list)
    inputs = value if several else [value]
    if len(inputs) > _MOST_TEXTS:
        raise InputError(f"there are more than {_MOST_TEXTS} texts", field="input")
    for each in inputs:
        if isinstance(each, list) and each and all(type(token) is int for token in each):
            continue
        if not isinstance(each, str) or not each:
            raise InputError("input must be texts, or lists of tokens", field="input")
    return tuple(inputs)


def _text(value: Any) -> str:
    text = value.get("text") if isinstance(value, Mapping) else value
    if not isinstance(text, str):
        raise InputError("a document must be a text, or have one", field="documents")
    return text


def normalize(vector: Array) -> Array:
    """Scale a vector to length 1; zero stays zero."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


def score_pair(outputs: Array) -> float:
    """The probability that a reranker's outputs [labels] give to a match: of one label its sigmoid,
    of several the softmax of the last.
    """
    if len(outputs) == 1:
        value = float(outputs[0])
        return 1 / (1 + math.exp(-value)) if value >= 0 else 1 - 1 / (1 + math.exp(value))
    powers = np.exp(outputs - outputs.max())
    return float(powers[-1] / powers.sum())
