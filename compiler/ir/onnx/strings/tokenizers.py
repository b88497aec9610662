"""The tokenizers of ONNX Runtime's extensions, as documents of the tokenizers library."""

import json
from collections.abc import Mapping
from typing import Any

from compiler.ir.onnx.strings.operand import (
    CONVERTERS,
    Axes,
    Converted,
    Result,
    StringNode,
    converts,
)

DOMAIN = "ai.onnx.contrib"
_REFUSED = (
    "HfJsonTokenizer",
    "SentencepieceTokenizer",
    "WordpieceTokenizer",
    "BlingFireSentenceBreaker",
    "CLIPTokenizer",
    "RobertaTokenizer",
    "SpmTokenizer",
    "TrieTokenizer",
    "BertTokenizerDecoder",
    "SentencepieceDecoder",
)
_IDS = (
    "encode the texts outside, with the model's own tokenizer, and give it the tokens: cut the "
    "node off with onnx.utils.extract_model(path, new_path, input_names, output_names)"
)
Document = dict[str, Any]
_END = "<|endoftext|>"


@converts(*_REFUSED, domain=DOMAIN)
def _refuse(node: StringNode) -> Converted:
    node.fail("no step is known to give the tokens that it gives", _IDS)


@converts("BertTokenizer", "HfBertTokenizer", domain=DOMAIN)
def _bert(node: StringNode) -> Converted:
    """One text or two in [tokens], or two in [1, tokens]."""
    _check_attributes(node, (*_BERT, "vocab", "vocab_file"))
    for name, usual in _BERT.items():
        if name not in _CHOICES and node.attr(name, usual) != usual:
            node.fail(f"no step has {name}={node.attr(name)!r}", _IDS)
    row, longest = node.proto.op_type == "HfBertTokenizer", node.attr("max_length", -1)
    outputs = _outputs(node, ("ids", "mask", "types") if row else ("ids", "types", "mask"))
    attributes = {
        "vocabulary": _vocabulary(node, node.attr("vocab_file") or node.attr("vocab", "")),
        "lower": bool(node.attr("do_lower_case", 1)),
        "strip_accents": bool(node.attr("strip_accents", 0)),
        "chinese": bool(node.attr("tokenize_chinese_chars", 1)),
        "longest": longest if longest > 0 else None,
        "row": row,
        "outputs": outputs,
    }
    axes: Axes = (1, None) if row else (None,)
    return Converted("wordpiece", tuple(Result("int64", axes) for _ in outputs), attributes)


@converts("GPT2Tokenizer", domain=DOMAIN)
def _gpt2(node: StringNode) -> Converted:
    """Texts [n], in [n, tokens]."""
    _check_attributes(node, ("vocab", "merges", "padding_length", "added_token", "model_name"))
    length = node.attr("padding_length", -1)
    width = None if length == -1 else length
    axes: Axes = (*node.axes(0), width)
    outputs = _outputs(node, ("ids", "mask"))
    attributes = {"tokenizer": _gpt2_document(node, width), "outputs": outputs}
    return Converted("encode", tuple(Result("int64", axes) for _ in outputs), attributes)


def _outputs(node: StringNode, names: tuple[str, ...]) -> list[str]:
    """Those of the operator's outputs that the node has."""
    if not all(node.proto.output):
        node.fail("one of its first outputs is left out")
    return [*names[: len(node.proto.output)]]


def _check_attributes(node: StringNode, known: tuple[str, ...]) -> None:
    for attribute in node.proto.attribute:
        if attribute.name not in known:
            node.fail(f"no step has its attribute {attribute.name!r}", _IDS)


_BERT: Mapping[str, Any] = {
    "do_lower_case": 1,
    "do_basic_tokenize": 1,
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "tokenize_chinese_chars": 1,
    "strip_accents": 0,
    "suffix_indicator": "##",
    "max_length": -1,
    "truncation_strategy_name": "longest_first",
}
"""Attributes of BertTokenizer, and what they usually are."""
_CHOICES = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "max_length")


def _vocabulary(node: StringNode, text: str) -> list[str]:
    """The tokens of a file that has one in each line; empty lines count for nothing."""
    tokens = [line for line in text.split("\n") if line]
    missing = {"[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"}.difference(tokens)
    if missing:
        node.fail(f"its vocabulary lacks {min(missing)}", _IDS)
    return tokens


def _truncation(longest: int) -> Document:
    return {
        "direction": "Right",
        "max_length": longest,
        "strategy": "LongestFirst",
        "stride": 0,
    }


def _gpt2_document(node: StringNode, width: int | None) -> Document:
    try:
        vocabulary = json.loads(node.attr("vocab", ""))
        added = dict(line.rsplit("=", 1) for line in node.attr("added_token", "").splitlines())
        # It is never cut up, declared or not.
        if isinstance(vocabulary, dict) and _END in vocabulary:
            added.setdefault(_END, vocabulary[_END])
        merges = [line.split(" ") for line in _merges(node.attr("merges", ""))]
        tokens = [_added(token, int(number)) for token, number in added.items()]
    except ValueError as error:
        node.fail(f"its vocabulary cannot be read: {error}", _IDS)
    if not isinstance(vocabulary, dict) or any(len(pair) != 2 for pair in merges):
        node.fail("its vocabulary cannot be read", _IDS)
    return {
        "version": "1.0",
        "truncation": None if width is None else _truncation(width),
        "padding": {
            "strategy": "BatchLongest" if width is None else {"Fixed": width},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "",
        },
        "added_tokens": tokens,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }


def _merges(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#version")]


def _added(token: str, number: int) -> Document:
    return {
        "id": number,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


CONVERTERS.update(
    {
        ("com.microsoft.extensions", op): convert
        for (domain, op), convert in CONVERTERS.items()
        if domain == DOMAIN
    }
)
