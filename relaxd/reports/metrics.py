"""Metrics of a model on labelled samples: top-1, F1, word error rate, perplexity, or a function."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from relaxd.errors import RelaxdError

IGNORED = -100
"""The label of a position that does not count, as in PyTorch's cross entropy."""
LOWER_IS_BETTER = frozenset({"wer", "perplexity"})
_SPACES = ("|", "▁")
"""How vocabularies write the border of two words."""

Function = Callable[[Mapping[str, np.ndarray], np.ndarray], float]
"""Gets all outputs by name and the labels, each with a row a sample."""


class MetricError(RelaxdError):
    """Outputs and labels that a metric cannot compare."""

    code = "accuracy.invalid"


class Metric(Protocol):
    """Takes batches, then gives one number."""

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """Take the outputs of a batch, and its labels."""
        ...

    def value(self) -> float:
        """The metric over all batches; raises MetricError where no label counts."""
        ...


@dataclass
class Top1:
    """The share of labels that are the greatest of the last axis, or equal to an integer output."""

    output: str
    _right: int = 0
    _count: int = 0

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """See Metric."""
        predicted, counted = _classes(outputs[self.output], labels)
        self._right += int((predicted == counted).sum())
        self._count += counted.size

    def value(self) -> float:
        """See Metric."""
        return _share(self._right, self._count)


@dataclass
class MacroF1:
    """The mean F1 of the classes that are predicted or are a label: 2 TP / (2 TP + FP + FN)."""

    output: str
    _right: Counter[int] = field(default_factory=Counter)
    _predicted: Counter[int] = field(default_factory=Counter)
    _labels: Counter[int] = field(default_factory=Counter)

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """See Metric."""
        predicted, counted = _classes(outputs[self.output], labels)
        self._right.update(counted[predicted == counted].tolist())
        self._predicted.update(predicted.tolist())
        self._labels.update(counted.tolist())

    def value(self) -> float:
        """See Metric."""
        classes = {*self._labels, *self._predicted}
        both = {one: self._predicted[one] + self._labels[one] for one in classes}
        return _share(sum(2 * self._right[one] / both[one] for one in classes), len(classes))


@dataclass
class Perplexity:
    """exp of the mean of -log softmax(logits)[label]; the label of a position stands at it."""

    output: str
    _sum: float = 0.0
    _count: int = 0

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """See Metric."""
        logits = _with_classes(outputs[self.output], labels)
        counted = labels != IGNORED
        rows, chosen = logits[counted].astype(np.float64), labels[counted].astype(np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < rows.shape[-1]):
            raise MetricError(f"labels have to be 0 to {rows.shape[-1] - 1}, or {IGNORED}")
        rows -= rows.max(axis=-1, keepdims=True)
        logs = rows[np.arange(chosen.size), chosen] - np.log(np.exp(rows).sum(axis=-1))
        self._sum -= float(logs.sum())
        self._count += chosen.size

    def value(self) -> float:
        """See Metric."""
        with np.errstate(over="ignore"):
            return float(np.exp(_share(self._sum, self._count)))


@dataclass
class WordErrorRate:
    """Words that are inserted, deleted or replaced, by the words of the labels.

    vocabulary: the text of each token, where labels are text; without it labels are tokens, padded
    with IGNORED. A floating-point output is decoded greedily as CTC: the greatest of each position,
    repeats merged, then `blank` left out; an integer output has tokens.
    """

    output: str
    vocabulary: Sequence[str] = ()
    blank: int = 0
    _wrong: int = 0
    _count: int = 0

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """See Metric."""
        array = outputs[self.output]
        is_text = labels.dtype.kind == "U"
        if is_text and not self.vocabulary:
            raise MetricError("labels are text, and no vocabulary is given for the outputs' tokens")
        rank = 3 if array.dtype.kind not in "iu" else 2
        if array.ndim != rank or len(array) != len(labels):
            raise _unlike(array, labels)
        for row, label in zip(array, labels, strict=True):
            predicted = self._words(self._tokens(row), is_text)
            expected = str(label).split() if is_text else _real(label)
            self._wrong += _edits(predicted, expected)
            self._count += len(expected)

    def value(self) -> float:
        """See Metric."""
        return _share(self._wrong, self._count)

    def _tokens(self, row: np.ndarray) -> list[int]:
        if row.dtype.kind in "iu":
            return _real(row)
        best = row.argmax(axis=-1)
        first = np.concatenate(([True], best[1:] != best[:-1])) if best.size else best
        return [int(token) for token in best[first.astype(bool)] if token != self.blank]

    def _words(self, tokens: list[int], is_text: bool) -> Sequence[str | int]:
        if not is_text:
            return tokens
        if beyond := [token for token in tokens if token >= len(self.vocabulary)]:
            raise MetricError(
                f"token {beyond[0]} is beyond the vocabulary of {len(self.vocabulary)} lines"
            )
        text = "".join(self.vocabulary[token] for token in tokens)
        for border in _SPACES:
            text = text.replace(border, " ")
        return text.split()


@dataclass
class Custom:
    """A function of all outputs and labels."""

    function: Function
    _outputs: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _labels: list[np.ndarray] = field(default_factory=list)

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        """See Metric."""
        for name, array in outputs.items():
            self._outputs.setdefault(name, []).append(array.copy())
        self._labels.append(labels)

    def value(self) -> float:
        """See Metric."""
        outputs = {name: np.concatenate(arrays) for name, arrays in self._outputs.items()}
        try:
            return float(self.function(outputs, np.concatenate(self._labels)))
        except Exception as error:  # it is the user's code
            raise MetricError(f"the metric raised {type(error).__name__}: {error}") from error


def _classes(array: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The predicted class of each label that counts, and that label."""
    if labels.dtype.kind not in "iub":
        raise MetricError(f"labels have to be integers, not {labels.dtype.name}")
    if array.dtype.kind in "iub":
        if array.shape != labels.shape:
            raise _unlike(array, labels)
        predicted = array
    else:
        predicted = _with_classes(array, labels).argmax(axis=-1)
    counted = labels != IGNORED
    return predicted[counted], labels[counted]


def _with_classes(array: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if array.ndim != labels.ndim + 1 or array.shape[:-1] != labels.shape:
        raise _unlike(array, labels)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _unlike(array: np.ndarray, labels: np.ndarray) -> MetricError:
    return MetricError(
        f"the output has shape {list(array.shape)} and its labels have {list(labels.shape)}",
        hint="the output has the labels' shape and an axis of classes after it, or is an integer "
        "for each label; for anything else give a Python function, as in metrics.py:function",
    )


def _real(tokens: np.ndarray) -> list[int]:
    return [int(token) for token in tokens if token != IGNORED]


def _share(part: float, count: int) -> float:
    if not count:
        raise MetricError("no label counts", hint=f"labels of {IGNORED} are left out")
    return part / count


def _edits(left: Sequence[str | int], right: Sequence[str | int]) -> int:
    """The Levenshtein distance, by rows."""
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            replaced = diagonal + (one != other)
            diagonal = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, replaced)
    return row[-1]
