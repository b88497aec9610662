"""Vectors and scores of texts by an encoder without state: texts that wait are computed together,
those of like length first.
"""

import json
import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import CapacityError, ClosedError, InputError, OverloadError
from relaxd.llm.batch import failure_of
from relaxd.llm.text import Text
from relaxd.loader.model import Model
from relaxd.loading import load

Array = np.ndarray[Any, Any]
_TOKENS, _MASK, _KINDS, _POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
_VECTORS = ("sentence_embedding", "last_hidden_state")
_SCORES = "logits"
_MOST_ROWS = 32
_MOST_WAITING = 4096


class Pooling(StrEnum):
    """How the vector of a text is made of those of its tokens."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"


@dataclass(frozen=True)
class Row:
    """The tokens of one text or of a pair; kinds: the text of the pair that each is of."""

    tokens: list[int]
    kinds: list[int] = field(default_factory=list)


class Encoder:
    """An encoder bundle with its tokenizer; `submit` may be called from any thread.

    The inputs are `input_ids` and, where the model has them, `attention_mask`, `token_type_ids` and
    `position_ids`, all [batch, tokens]. The output is `sentence_embedding` [batch, size],
    `last_hidden_state` [batch, tokens, size], which is pooled, or, of a reranker, `logits`
    [batch, labels]; else the first one.
    """

    def __init__(self, model: Model, text: Text, pooling: Pooling = Pooling.MEAN) -> None:
        self.model, self.text, self.pooling = model, text, pooling
        self._inputs = {spec.name: spec for spec in model.inputs}
        self._output = _output_of(model)
        rows, tokens = _axes_of(self._inputs)
        self._rows, self._length = _sizes(model, rows), _sizes(model, tokens)
        self.capacity = _LONGEST if self._length.highest is None else self._length.highest
        most = self._rows.highest
        self._most_rows = _MOST_ROWS if most is None else min(most, _MOST_ROWS)
        self._waiting: list[tuple[Row, Future[Array]]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="relaxd-encoder", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        bundle: str | PathLike[str],
        tokenizer: str | PathLike[str] | None = None,
        *,
        model: Model | None = None,
        threads: int | None = None,
    ) -> "Encoder":
        """Open a bundle and the folder of its tokenizer, by default the bundle's own; the folder's
        `1_Pooling/config.json`, as sentence-transformers writes it, says how vectors are pooled.
        model: the bundle, where it is loaded already.
        """
        folder = Path(bundle if tokenizer is None else tokenizer)
        return cls(model or load(bundle, threads=threads), Text(folder), read_pooling(folder))

    @property
    def scores(self) -> bool:
        """True for a reranker, whose outputs are scores of pairs and no vectors."""
        return self._output.name == _SCORES and len(self._output.shape) == 2

    @property
    def waiting(self) -> int:
        """The number of texts that wait."""
        return len(self._waiting)

    @property
    def longest_prompt(self) -> int:
        """The most bytes of a text, of which more do not fit."""
        return self.capacity * self.text.longest_token

    def encode(self, text: str | Sequence[int]) -> Row:
        """The tokens of a text, or given ones; raises InputError, CapacityError."""
        if isinstance(text, str):
            if len(text) > self.longest_prompt:
                raise CapacityError(math.ceil(len(text) / self.text.longest_token), self.capacity)
            text = self.text.encode(text)
        if not len(text):
            raise InputError("a text is empty", field="input")
        if len(text) > self.capacity:
            raise CapacityError(len(text), self.capacity)
        size = self.text.vocabulary_size
        if not all(0 <= token < size for token in text):
            raise InputError(f"the tokens are 0 to {size - 1}", field="input")
        return Row(list(text))

    def encode_pair(self, query: str, document: str) -> Row:
        """The tokens of a pair, with a document that is too long cut at its end; raises
        CapacityError for a query that leaves no room.
        """
        # More letters than tokens of the greatest length cannot fit: no need to read them.
        tokens, kinds = self.text.encode_pair(query, document[: self.longest_prompt])
        excess = len(tokens) - self.capacity
        if excess > 0:
            ends = self.text.token_ends(document[: self.longest_prompt])
            if excess >= len(ends):
                raise CapacityError(len(tokens) - len(ends) + 1, self.capacity)
            retained = document[: ends[len(ends) - excess - 1]]
            tokens, kinds = self.text.encode_pair(query, retained)
        return Row(tokens[: self.capacity], kinds[: self.capacity])

    def submit(self, rows: Sequence[Row]) -> list[Future[Array]]:
        """Begin to compute the vector, or the scores, of each row, float64 [size]; raises
        OverloadError where too many wait, ClosedError behind `close`.
        """
        submitted: list[tuple[Row, Future[Array]]] = [(row, Future()) for row in rows]
        with self._changed:
            if self._closed:
                raise ClosedError("the encoder is closed", retry_after=1)
            if len(self._waiting) + len(rows) > _MOST_WAITING:
                raise OverloadError(
                    f"{len(self._waiting)} texts wait already",
                    hint="try again later",
                    retry_after=1,
                )
            self._waiting += submitted
            self._changed.notify_all()
        return [future for _, future in submitted]

    def close(self) -> None:
        """End the thread; texts that wait are cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> "Encoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while batch := self._next():
            try:
                results = self._run([row for row, _ in batch])
            except BaseException:
                self._run_each(batch)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                future.set_result(result)

    def _run_each(self, batch: list[tuple[Row, "Future[Array]"]]) -> None:
        """Compute each text by itself, behind a call for all that failed: one that is at fault ends
        no other.
        """
        for row, future in batch:
            try:
                future.set_result(self._run([row])[0])
            except BaseException as error:
                future.set_exception(failure_of(error))

    def _next(self) -> list[tuple[Row, "Future[Array]"]]:
        """Wait for texts, and take the one that waits longest with those of nearest length; none at
        the end.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    for _, future in self._waiting:
                        future.cancel()
                    return []
                length = len(self._waiting[0][0].tokens)
                order = sorted(self._waiting, key=lambda each: abs(len(each[0].tokens) - length))
                if _MASK not in self._inputs:
                    order = [each for each in order if len(each[0].tokens) == length]
                batch = order[: self._most_rows]
                chosen = {id(future) for _, future in batch}
                self._waiting = [each for each in self._waiting if id(each[1]) not in chosen]
            batch = [each for each in batch if each[1].set_running_or_notify_cancel()]
            if batch:
                return batch

    def _run(self, rows: list[Row]) -> list[Array]:
        count = _fit(self._rows, len(rows))
        length = _fit(self._length, max(len(row.tokens) for row in rows))
        if length != min(len(row.tokens) for row in rows) and _MASK not in self._inputs:
            raise InputError(f"the model has no {_MASK}: texts of this length cannot be padded")
        arrays = {name: np.zeros((count, length), np.int64) for name in self._inputs}
        for index in range(count):
            # Rows beyond the last repeat it.
            row = rows[min(index, len(rows) - 1)]
            size = len(row.tokens)
            arrays[_TOKENS][index, :size] = row.tokens
            if _MASK in arrays:
                arrays[_MASK][index, :size] = 1
            if _KINDS in arrays and row.kinds:
                arrays[_KINDS][index, :size] = row.kinds
            if _POSITIONS in arrays:
                arrays[_POSITIONS][index] = np.arange(length)
        feed = {name: arrays[name].astype(spec.dtype) for name, spec in self._inputs.items()}
        values = self.model.run(feed)[self._output.name].astype(np.float64)
        sizes = [len(row.tokens) for row in rows]
        if values.ndim == 2:
            return list(values[: len(rows)])
        return [
            _pool(self.pooling, value[:size])
            for value, size in zip(values[: len(rows)], sizes, strict=True)
        ]


_LONGEST = 1 << 15
"""Tokens of a text where the model sets no limit."""


_POOLINGS = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
    "pooling_mode_lasttoken": Pooling.LAST,
}


def read_pooling(folder: Path) -> Pooling:
    """Read the pooling that sentence-transformers wrote beside a tokenizer; the mean without."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return Pooling.MEAN
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    chosen = [pooling for name, pooling in _POOLINGS.items() if settings.get(name) is True]
    if len(chosen) != 1:
        known = ", ".join(Pooling)
        raise InputError(f"{path} pools in another way than one of these: {known}")
    return chosen[0]


def _pool(pooling: Pooling, values: Array) -> Array:
    """One vector of those of tokens [tokens, size]."""
    match pooling:
        case Pooling.MEAN:
            return np.asarray(values.mean(axis=0))
        case Pooling.CLS:
            return np.asarray(values[0])
        case Pooling.MAX:
            return np.asarray(values.max(axis=0))
    return np.asarray(values[-1])


def _output_of(model: Model) -> TensorSpec:
    known = {spec.name: spec for spec in model.outputs}
    names = [name for name in (*_VECTORS, _SCORES) if name in known]
    output = known[names[0]] if names else model.outputs[0]
    if len(output.shape) not in (2, 3):
        raise InputError(
            f"the output {output.name} has {len(output.shape)} axes; it must be [batch, size] or"
            " [batch, tokens, size]"
        )
    return output


def _axes_of(inputs: dict[str, TensorSpec]) -> tuple[Any, Any]:
    """The axes of a batch and of its tokens."""
    known = {_TOKENS, _MASK, _KINDS, _POSITIONS}
    others = sorted(set(inputs) - known)
    if _TOKENS not in inputs or others or len(inputs[_TOKENS].shape) != 2:
        raise InputError(
            f"the model takes {', '.join(inputs)}, and is no encoder of tokens",
            hint=f"an encoder takes {_TOKENS} [batch, tokens], and may take {_MASK}, {_KINDS} and"
            f" {_POSITIONS}",
        )
    rows, tokens = inputs[_TOKENS].shape
    return rows, tokens


def _sizes(model: Model, axis: Any) -> Dim:
    """The sizes that an axis may have."""
    named = {quote_name(dim.name): dim for dim in model.dims}
    if (dim := named.get(str(axis))) is not None:
        return dim
    fixed = axis.evaluate({})
    return Dim("fixed", fixed, fixed)


def _fit(dim: Dim, count: int) -> int:
    """The least size of a dim that holds so many."""
    return max(-(-count // dim.multiple) * dim.multiple, dim.lowest)
