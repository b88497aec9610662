"""Steps on strings beside ONNX Runtime's operators, one after another."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.errors import ImportFailed, VerifyError
from compiler.isolation.step import Outcome
from compiler.verify import strings as verifying
from compiler.verify.reference.strings import compare
from compiler.verify.sides import Budget
from relaxd.contract.bundle.numerics import Verdict
from relaxd.loader.strings import tables
from tests.compiler.text_models import (
    FLOAT,
    INT64,
    MICROSOFT,
    ML,
    STRING,
    WORDS,
    bert,
    model_of,
    node,
    pipeline,
)

POOL = [*WORDS, "a", "c", "t", " ", "#", "\x02", "THE", "Über", "th", ""]


def compare_model(folder: Path, model: onnx.ModelProto, seed: int = 0) -> dict[str, Any]:
    """The records of a comparison as one."""
    onnx.save(model, folder / "model.onnx")
    result: dict[str, Any] = {}
    compare({"model": str(folder / "model.onnx"), "request": {}, "seed": seed}, result.update)
    return result


def assert_equal(folder: Path, model: onnx.ModelProto) -> None:
    result = compare_model(folder, model)
    assert result.get("compared", 0) > 8, result


def count_words(
    nodes: list[onnx.NodeProto], shape: list[Any], **attributes: Any
) -> onnx.ModelProto:
    """Strings x by way of the nodes to `tokens`, of which words are counted."""
    usual: dict[str, Any] = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": [0],
        "ngram_indexes": list(range(len(POOL))),
        "pool_strings": POOL,
    }
    last = [
        node("TfIdfVectorizer", ["tokens"], ["counts"], **{**usual, **attributes}),
        node("Mul", ["counts", "two"], ["y"]),
    ]
    constants = {"two": np.array(2, np.float32)}
    return model_of([*nodes, *last], [("x", STRING, shape)], [("y", FLOAT)], constants)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "how",
    [
        {"tokenexp": "[a-z]+"},
        {"tokenexp": r"\b\w\w+\b"},
        {"tokenexp": r"\S+"},
        {"tokenexp": "t$"},
        {"tokenexp": "."},
        {"tokenexp": "t|th|the"},
        {"tokenexp": r"\w+?"},
        {"tokenexp": "a?(?:ab)?"},
        {"tokenexp": "(?i)the"},
        {"tokenexp": r"\pL+"},
        {"tokenexp": "[[:alpha:]]"},
        {"separators": [""]},
        {"separators": [", ", " "]},
        {"separators": [r"[\sa]+"]},
    ],
)
def test_tokens(tmp_path: Path, how: dict[str, Any], mark: int) -> None:
    attributes = {"mark": mark, "mincharnum": 1, "pad_value": "#", **how}
    tokens = node("Tokenizer", ["x"], ["tokens"], domain=MICROSOFT, **attributes)
    assert_equal(tmp_path, count_words([tokens], ["n"]))


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1"])
def test_patterns_that_cannot_be_read_are_refused(tmp_path: Path, pattern: str) -> None:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": pattern}
    tokens = node("Tokenizer", ["x"], ["tokens"], domain=MICROSOFT, **attributes)
    assert "pattern" in compare_model(tmp_path, count_words([tokens], ["n"]))["unable"]


@pytest.mark.parametrize("case", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("exact", [0, 1])
@pytest.mark.parametrize("words", [[], ["the", "CAT", "Über"]])
def test_normalization(tmp_path: Path, case: str, exact: int, words: list[str]) -> None:
    own = {"stopwords": words} if words else {}
    normal = node(
        "StringNormalizer",
        ["x"],
        ["tokens"],
        case_change_action=case,
        is_case_sensitive=exact,
        **own,
    )
    assert_equal(tmp_path, count_words([normal], [1, "n"] if exact else ["n"]))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("shape", [["n"], ["n", 6]])
def test_ngrams(tmp_path: Path, mode: str, skip: int, shape: list[Any]) -> None:
    pool = ["the", "cat", "dog", "the", "cat", "cat", "sat", "the", "cat", "sat"]
    model = count_words(
        [node("Identity", ["x"], ["tokens"])],
        shape,
        mode=mode,
        max_skip_count=skip,
        max_gram_length=3,
        ngram_counts=[0, 3, 7],
        ngram_indexes=[5, 1, 0, 2, 4, 3],
        pool_strings=pool,
        weights=[0.5, 0.75, 1.0, 1.25, 1.5, 1.75],
    )
    assert_equal(tmp_path, model)


def table(op: str, **attributes: Any) -> onnx.NodeProto:
    return node(op, ["x"], ["y"], domain=ML, **attributes)


@pytest.mark.parametrize("shape", [["n"], ["n", 3], ["n", "m"]])
@pytest.mark.parametrize(
    ("encoder", "kind"),
    [
        (table("OneHotEncoder", cats_strings=["a", "", "über"], zeros=1), FLOAT),
        (table("OneHotEncoder", cats_strings=["a", "", "über"], zeros=0), FLOAT),
        (table("LabelEncoder", keys_strings=["a", "b"], values_int64s=[5, -7]), INT64),
        (
            table(
                "LabelEncoder",
                keys_strings=["a", "b"],
                values_floats=[0.5, 2.0],
                default_float=float("nan"),
            ),
            FLOAT,
        ),
    ],
)
def test_tables(tmp_path: Path, encoder: onnx.NodeProto, kind: int, shape: list[Any]) -> None:
    assert_equal(tmp_path, model_of([encoder], [("x", STRING, shape)], [("y", kind)]))


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "indices"),
    [
        ("Reshape", {}, ["n", 4], [-1, 2]),
        ("Reshape", {}, ["n", 4], [0, 2, 2]),
        ("Gather", {"axis": -1}, ["n", 4], [3, 0]),
        ("ArrayFeatureExtractor", {"domain": ML}, ["n", 4], [2, 0]),
        ("Squeeze", {}, ["n", 1], [1]),
        ("Unsqueeze", {}, ["n", 3], [0, -1]),
    ],
)
def test_selections(
    tmp_path: Path, op: str, attributes: dict[str, Any], shape: list[Any], indices: list[int]
) -> None:
    nodes = [
        node(op, ["x", "k"], ["r"], **attributes),
        node("Concat", ["r", "r"], ["c"], axis=-1),
        node("OneHotEncoder", ["c"], ["y"], domain=ML, cats_strings=["a", "b"], zeros=1),
    ]
    constants = {"k": np.array(indices, np.int64)}
    assert_equal(tmp_path, model_of(nodes, [("x", STRING, shape)], [("y", FLOAT)], constants))


def test_strings_made_of_strings(tmp_path: Path) -> None:
    """The nodes of a SimpleImputer, with a table in between, and a join."""
    keys = {"keys_strings": ["", "?"], "values_int64s": [1, 1], "default_int64": 0}
    nodes = [
        node("LabelEncoder", ["x"], ["lacks"], domain=ML, **keys),
        node("Cast", ["lacks"], ["mask"], to=onnx.TensorProto.BOOL),
        node("Where", ["mask", "fill", "x"], ["full"]),
        node("StringConcat", ["full", "fill"], ["longer"]),
        node("OneHotEncoder", ["longer"], ["y"], domain=ML, cats_strings=["aa", "ba"], zeros=1),
    ]
    constants = {"fill": np.array(["a"], object)}
    assert_equal(tmp_path, model_of(nodes, [("x", STRING, ["n", 2])], [("y", FLOAT)], constants))


def test_category_mapper(tmp_path: Path) -> None:
    pairs = {"cats_strings": ["a", "b"], "cats_int64s": [4, 7], "default_int64": -9}
    nodes = [
        node("CategoryMapper", ["x"], ["k"], domain=ML, **pairs),
        node("Abs", ["k"], ["y"]),
    ]
    assert_equal(tmp_path, model_of(nodes, [("x", STRING, ["n"])], [("y", INT64)], ml=1))


def test_a_wrong_step_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "UNKNOWN", 0)
    result = compare_model(tmp_path, pipeline())
    assert "other" in result["mismatch"]
    assert set(result["strings"]) == {"city", "kind"}


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = compare_model(tmp_path, bert())
    assert "onnxruntime-extensions" in result.get("unable", "") or result["compared"] > 0


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        ([{"unable": "no such operator"}], Verdict.NOT_RUN),
        ([{"engine": "e"}, {"compared": 0, "refused": 24}], Verdict.NOT_RUN),
        ([{"engine": "e"}, {"compared": 20, "refused": 4}], Verdict.PASSED),
    ],
)
def test_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[Any], verdict: Verdict
) -> None:
    monkeypatch.setattr(verifying, "run_task", lambda *_, **__: Outcome(records, True))
    report = verifying.verify_strings(tmp_path, {}, 0, tmp_path, Budget())
    assert report["verdict"] == verdict
    assert ("reason" in report) is (verdict is Verdict.NOT_RUN)


def test_a_difference_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = [
        {"engine": "e"},
        {"mismatch": "output 'y' has other numbers", "strings": {"x": []}},
    ]
    monkeypatch.setattr(verifying, "run_task", lambda *_, **__: Outcome(records, True))
    with pytest.raises(VerifyError, match="other numbers") as caught:
        verifying.verify_strings(tmp_path, {}, 0, tmp_path, Budget())
    assert caught.value.code == "verify.strings"


def test_tokenizers_without_a_step_say_what_to_do() -> None:
    from compiler.ir.onnx.strings.cut import cut_strings
    from relaxd.contract.request import CompileRequest

    one = node("HfJsonTokenizer", ["x"], ["ids"], domain="ai.onnx.contrib", tokenizer_vocab="{}")
    model = model_of([one, node("Abs", ["ids"], ["y"])], [("x", STRING, ["n"])], [("y", INT64)])
    with pytest.raises(ImportFailed, match="HfJsonTokenizer") as caught:
        cut_strings(model, CompileRequest())
    assert "encode the texts outside" in str(caught.value.failure.hint)
