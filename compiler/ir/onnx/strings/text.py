"""Nodes that compute on the characters of strings, or look strings up."""

from itertools import pairwise
from typing import Any

import numpy as np
from onnx import numpy_helper

from compiler.ir.onnx.strings.moving import broadcast, is_text_array
from compiler.ir.onnx.strings.operand import Axes, Converted, Result, StringNode, converts
from relaxd.contract.dims.tensors import TEXT
from relaxd.loader.strings.patterns import compile_pattern

_ML = "ai.onnx.ml"
_MICROSOFT = "com.microsoft"
_OTHER_CASES = ("tr", "az", "lt")
"""Languages whose letters have cases of their own."""


@converts("StringNormalizer")
def _normalizer(node: StringNode) -> Converted:
    case, axes = node.attr("case_change_action", "NONE"), node.axes(0)
    if case not in ("LOWER", "UPPER", "NONE"):
        node.fail(f"case_change_action is {case!r}, which ONNX does not define")
    if node.attr("locale", "").startswith(_OTHER_CASES):
        node.fail(f"the cases of {node.attr('locale')} are others")
    words = node.attr("stopwords", [])
    changed: Axes = (*axes[:-1], None) if words else axes
    attributes = {
        "case": case,
        "case_sensitive": bool(node.attr("is_case_sensitive", 0)),
        "stop_words": words,
    }
    return Converted("normalize", (Result(TEXT, changed),), attributes)


@converts("Tokenizer", domain=_MICROSOFT)
def _tokenizer(node: StringNode) -> Converted:
    pattern, separators = node.attr("tokenexp", ""), node.attr("separators", [])
    # ONNX Runtime takes each character for a token then, line ends too.
    pattern, separators = ("", []) if pattern == "." else (pattern, separators)
    attributes: dict[str, Any] = {
        "mark": bool(node.attr("mark", 0)),
        "pad": node.attr("pad_value", ""),
        "shortest": node.attr("mincharnum", 1),
    }
    if pattern:
        attributes["pattern"] = _checked(node, pattern, longest=True)
    else:
        retained = [] if separators == [""] else separators
        attributes["separators"] = [_checked(node, one, longest=True) for one in retained]
    return Converted("tokenize", (Result(TEXT, (*node.axes(0), None)),), attributes)


def _checked(node: StringNode, pattern: str, *, longest: bool = False) -> str:
    """A pattern that RE2 can read."""
    try:
        compile_pattern(pattern, longest=longest)
    except ValueError as error:
        node.fail(str(error))
    return pattern


@converts("TfIdfVectorizer")
def _ngrams(node: StringNode) -> Converted:
    if not node.operand(0).is_text:
        node.fail("it counts n-grams of numbers")
    positions, axes = node.attr("ngram_indexes", []), node.axes(0)
    size = max(positions, default=-1) + 1
    attributes = {
        "grams": _grams(node),
        "positions": positions,
        "size": size,
        "shortest": node.attr("min_gram_length", 1),
        "longest": node.attr("max_gram_length", 1),
        "skip": node.attr("max_skip_count", 0),
        "mode": node.attr("mode", "TF"),
    }
    weights = node.attr("weights", [])
    if weights and attributes["mode"] != "TF":
        # By position, as the attribute is by n-gram.
        by_position = np.ones(size, np.float32)
        by_position[positions] = weights
        attributes["weights"] = by_position.tolist()
    return Converted("ngrams", (Result("float32", (*axes[:-1], size)),), attributes)


def _grams(node: StringNode) -> list[list[str]]:
    """The n-grams of the pool, shortest first: `ngram_counts` says where each length begins."""
    pool, starts = node.attr("pool_strings", []), node.attr("ngram_counts", [])
    grams: list[list[str]] = []
    for length, (start, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        if (end - start) % length or not 0 <= start <= end <= len(pool):
            node.fail("ngram_counts does not divide the pool")
        grams += [pool[first : first + length] for first in range(start, end, length)]
    if len(grams) != len(node.attr("ngram_indexes", [])):
        node.fail("ngram_indexes has not one element for each n-gram of the pool")
    return grams


@converts("StringConcat")
def _join(node: StringNode) -> Converted:
    return Converted("join", (Result(TEXT, broadcast(node.axes(0), node.axes(1))),))


@converts("RegexFullMatch")
def _match(node: StringNode) -> Converted:
    attributes = {"pattern": _checked(node, node.attr("pattern", ""))}
    return Converted("match", (Result("bool", node.axes(0)),), attributes)


@converts("OneHotEncoder", domain=_ML)
def _one_hot(node: StringNode) -> Converted:
    """By keys alone: the library has the rest."""
    keys = node.attr("cats_strings", [])
    if not node.operand(0).is_text or not keys:
        node.fail("its categories are not strings")
    axes = (*node.axes(0), len(keys))
    strict = not node.attr("zeros", 1)
    return Converted("", (Result("float32", axes),), keys=tuple(keys), strict=strict)


@converts("LabelEncoder", domain=_ML)
def _label_encoder(node: StringNode) -> Converted:
    keys, values = _table(node, "keys"), _table(node, "values")
    if len(keys) != len(values) or not keys:
        node.fail(f"{len(keys)} keys are given for {len(values)} values")
    if len({*keys}) < len(keys):
        node.fail("a key stands for two values")
    text = isinstance(keys[0], str)
    if not text and not isinstance(keys[0], int):
        node.fail("its keys are floats")
    if text is not node.operand(0).is_text:
        node.fail("its keys are of another type than its input")
    dtype, default = _default(node, values[0])
    attributes = {"keys": keys, "values": values, "default": default, "dtype": dtype}
    split = tuple(str(key) for key in keys) if text and dtype != TEXT else None
    return Converted("map", (Result(dtype, node.axes(0)),), attributes, keys=split)


def _table(node: StringNode, side: str) -> list[Any]:
    """The keys or values, whichever of their attributes is given."""
    for kind in ("strings", "int64s", "floats"):
        if values := node.attr(f"{side}_{kind}"):
            return list(values)
    tensor = node.attr(f"{side}_tensor")
    return [] if tensor is None else _elements(np.asarray(numpy_helper.to_array(tensor)))


def _elements(array: np.ndarray) -> list[Any]:
    elements = array.reshape(-1).tolist()
    if is_text_array(array):
        return [one.decode() if isinstance(one, bytes) else str(one) for one in elements]
    return elements


def _default(node: StringNode, value: Any) -> tuple[str, Any]:
    """The dtype of the values, and the one for elements that are no key."""
    tensor = node.attr("default_tensor")
    own = None if tensor is None else _elements(np.asarray(numpy_helper.to_array(tensor)))[0]
    if isinstance(value, str):
        return TEXT, own if own is not None else node.attr("default_string", "_Unused")
    values = node.attr("values_tensor")
    dtype = None if values is None else np.asarray(numpy_helper.to_array(values)).dtype.name
    if isinstance(value, int):
        return dtype or "int64", own if own is not None else node.attr("default_int64", -1)
    return dtype or "float32", own if own is not None else node.attr("default_float", -0.0)


@converts("CategoryMapper", domain=_ML)
def _category_mapper(node: StringNode) -> Converted:
    numbers, names = node.attr("cats_int64s", []), node.attr("cats_strings", [])
    if len(numbers) != len(names) or not names:
        node.fail(f"{len(names)} names are given for {len(numbers)} numbers")
    if node.operand(0).is_text:
        dtype, keys, values = "int64", names, numbers
        default: Any = node.attr("default_int64", -1)
    else:
        dtype, keys, values = TEXT, numbers, names
        default = node.attr("default_string", "_Unused")
    attributes = {"keys": keys, "values": values, "default": default, "dtype": dtype}
    return Converted("map", (Result(dtype, node.axes(0)),), attributes)
