"""Steps on strings by themselves: documents nobody has vouched for, and tokens as recorded."""

from typing import Any

import numpy as np
import pytest

from relaxd.contract.bundle.strings import Step, Steps, Strings, string_spec
from relaxd.contract.dims.axes import Axis
from relaxd.errors import BundleError, InputError
from relaxd.loader.strings.patterns import compile_pattern
from relaxd.loader.strings.program import Program
from relaxd.loader.strings.text import lower, upper

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "un", "##aff", "##able"),
    *("!", ",", "ü", "u", "caf", "##e", "##é", "the", "##s", "東", "京", "[", "]"),
]
WORDPIECE: dict[str, Any] = {
    "vocabulary": VOCABULARY,
    "lower": True,
    "strip_accents": False,
    "chinese": True,
    "longest": None,
    "row": False,
    "outputs": ["ids", "types", "mask"],
}


def program(op: str, attributes: dict[str, Any], outputs: int = 1, rank: int = 1) -> Program:
    """One step on an input x of strings."""
    names = tuple(f"y{index}" for index in range(outputs))
    axes = tuple(Axis(f"n{index}") for index in range(rank))
    interface = Strings((string_spec("x", axes),), (), names)
    return Program(interface, Steps((Step(op, ("x",), names, attributes),)))


@pytest.mark.parametrize(
    ("texts", "ids", "types"),
    [
        (["Hello world!"], [2, 5, 6, 10, 3], [0] * 5),
        (["hello", "world"], [2, 5, 3, 6, 3], [0, 0, 0, 1, 1]),
        ([""], [2, 3], [0, 0]),
        (["", "hello"], [2, 3, 5, 3], [0, 0, 1, 1]),
        (["unaffable, café Ünü 東京 xyz"], [2, 7, 8, 9, 11, 14, 16, 12, 1, 19, 20, 1, 3], [0] * 13),
        (["[MASK] hello [SEP]"], [2, 21, 1, 22, 5, 21, 1, 22, 3], [0] * 9),
        (["the\u01c4caf x"], [2, 17, 1, 1, 3], [0] * 5),
        (["\thel\u200blo\u00a0" + "s" * 101], [2, 5, 1, 3], [0] * 4),
    ],
)
def test_wordpiece_as_recorded(texts: list[str], ids: list[int], types: list[int]) -> None:
    """The tokens of BertTokenizer of onnxruntime-extensions 0.15.2."""
    encoded = program("wordpiece", WORDPIECE, 3).encode({"x": texts})
    assert encoded["y0"].tolist() == ids
    assert encoded["y1"].tolist() == types
    assert encoded["y2"].tolist() == [1] * len(ids)


@pytest.mark.parametrize(
    ("changed", "text", "ids"),
    [
        ({"lower": False}, "Hello CAFÉ café", [2, 1, 1, 14, 16, 3]),
        ({"strip_accents": True}, "Hello CAFÉ café", [2, 5, 14, 15, 14, 15, 3]),
        ({"longest": 4}, "hello world the the the", [2, 5, 6, 3]),
        ({"chinese": False}, "東京hello", [2, 19, 1, 3]),
    ],
)
def test_wordpiece_options_as_recorded(changed: dict[str, Any], text: str, ids: list[int]) -> None:
    encoded = program("wordpiece", {**WORDPIECE, **changed}, 3).encode({"x": [text]})
    assert encoded["y0"].tolist() == ids


def test_wordpiece_takes_one_text_or_two() -> None:
    with pytest.raises(InputError, match="not 3"):
        program("wordpiece", WORDPIECE, 3).encode({"x": ["a", "b", "c"]})
    with pytest.raises(InputError, match="two texts"):
        program("wordpiece", {**WORDPIECE, "row": True}, 3).encode({"x": ["a"]})


def byte_level(**padding: Any) -> dict[str, Any]:
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "",
            **padding,
        },
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    }
    return {"tokenizer": document, "outputs": ["ids", "mask"]}


def test_byte_pairs_are_filled_up() -> None:
    pytest.importorskip("tokenizers")
    encoded = program("encode", byte_level(), 2).encode({"x": ["abab", "b", ""]})
    assert encoded["y0"].tolist() == [[2, 2], [1, 0], [0, 0]]
    assert encoded["y1"].tolist() == [[1, 1], [1, 0], [0, 0]]
    assert program("encode", byte_level(), 2).encode({"x": []})["y0"].shape == (0, 0)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("compile", {}),
        ("index", {"keys": [1], "strict": True}),
        ("index", {"keys": ["a"]}),
        ("map", {"keys": ["a"], "values": [], "default": 0, "dtype": "int64"}),
        ("map", {"keys": ["a"], "values": ["x"], "default": 0, "dtype": "int64"}),
        ("map", {"keys": ["a"], "values": [1], "default": 0, "dtype": "object"}),
        ("normalize", {"case": "TITLE", "case_sensitive": True, "stop_words": []}),
        ("tokenize", {"pattern": "(?=a)", "shortest": 1, "mark": False, "pad": ""}),
        ("ngrams", {"grams": [["a"]], "positions": [3], "size": 1, "mode": "TF"}),
        ("wordpiece", {**WORDPIECE, "vocabulary": ["a"]}),
        ("encode", {"tokenizer": {}, "outputs": ["ids"]}),
        ("encode", {"tokenizer": "tokenizer.json", "outputs": ["ids"]}),
        ("reshape", {"shape": ["-1"], "allowzero": False}),
        ("cast", {"dtype": "object"}),
    ],
)
def test_steps_that_cannot_be_read(op: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        program(op, attributes)


def test_a_step_that_fails_is_a_matter_of_the_input() -> None:
    one = program("reshape", {"shape": [2, 2], "allowzero": False})
    with pytest.raises(InputError, match="step 'reshape' on x failed"):
        one.encode({"x": ["a"]})


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\w+", "déf_1", ["d", "f_1"]),
        (r"[^\s]+", "a\x0bb c", ["a\x0bb", "c"]),
        (r"[^]a]+", "x]ya", ["x", "y"]),
        ("t$", "t\nt", ["t"]),
        (r"\.", "a.b", ["."]),
        (r"ab|abc|b+", "abcbb", ["abc", "bb"]),
        (r"(?i)é[[:alpha:]]", "Éa", ["Éa"]),
    ],
)
def test_patterns(pattern: str, text: str, matches: list[str]) -> None:
    assert compile_pattern(pattern, longest=True).findall(text) == matches


def test_a_pattern_takes_linear_time() -> None:
    assert compile_pattern("(a|a)*(a|aa)*b").fullmatch("a" * 10_000) is None


def test_cases_keep_the_number_of_characters() -> None:
    assert lower("ÀBİ ΑΣ") == "àbi ας".replace("ς", "σ")
    assert upper("straße ﬁ ᾀ ǆ") == "STRAßE ﬁ ᾈ Ǆ"


def test_empty_inputs() -> None:
    tokens = {"mark": False, "pad": "#", "shortest": 1, "separators": [" "]}
    encoded = program("tokenize", tokens).encode({"x": np.zeros(0)})
    assert encoded["y0"].shape == (0, 0)
    assert program("tokenize", tokens).encode({"x": ["", ""]})["y0"].shape == (2, 0)
