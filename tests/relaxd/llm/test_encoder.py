"""Embeddings and reranking by small encoders, beside numpy."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import compiler
from relaxd.contract.options import CompileOptions
from relaxd.errors import ExecutionError, InputError
from relaxd.llm.encoder import Encoder, Pooling, read_pooling
from relaxd.llm.encoder_server import create_encoder_app
from relaxd.loader.model import Model
from tests.compiler.ir.onnx.running import model_of
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import LETTERS, tokenizer
from tests.support import plain_http

if TYPE_CHECKING:
    import openai

SIZE, LONGEST, MODEL = 8, 12, "tiny"
TABLE = np.random.default_rng(3).standard_normal((64, SIZE)).astype(np.float32)
HEAD = np.random.default_rng(4).standard_normal((SIZE, 1)).astype(np.float32)
DIMS = {"batch": "1:4", "seq": f"1:{LONGEST}"}


def make_model(*, scores: bool) -> onnx.ModelProto:
    """Vectors of tokens, to each of which the mean of all is added; of a reranker, one score."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["floats"], to=1),
        helper.make_node("Unsqueeze", ["floats", "last"], ["mask"]),
        helper.make_node("Mul", ["vectors", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["mask", "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["vectors", "mean"], ["last_hidden_state"]),
    ]
    inputs = {"input_ids": "int64[batch,seq]", "attention_mask": "int64[batch,seq]"}
    outputs = ["last_hidden_state"]
    constants: dict[str, Any] = {"table": TABLE, "last": np.array([-1]), "middle": np.array([1])}
    if scores:
        nodes += [
            helper.make_node("Squeeze", ["mean", "middle"], ["flat"]),
            helper.make_node("MatMul", ["flat", "head"], ["logits"]),
        ]
        outputs, constants["head"] = ["logits"], HEAD
    return model_of(nodes, inputs, constants, outputs=outputs)


def words(folder: Path) -> Path:
    """The tokenizer of letters, with `|` between the texts of a pair, that says to cut texts."""
    tokenizer(folder)
    created = Tokenizer.from_file(str(folder / "tokenizer.json"))
    created.post_processor = TemplateProcessing(
        single="$A", pair="$A | $B:1", special_tokens=[("|", LETTERS.index("|"))]
    )
    created.enable_truncation(5)
    created.enable_padding()
    created.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    options = CompileOptions(verify=False, profile=False)
    for name in ("vectors", "scores"):
        compiler.compile_model(
            make_model(scores=name == "scores"), output=folder / name, dims=DIMS, options=options
        )
    return {"tokenizer": words(folder / "words"), **{n: folder / n for n in ("vectors", "scores")}}


@pytest.fixture(scope="module")
def addresses(bundles: dict[str, Path]) -> Iterator[dict[str, str]]:
    with (
        Encoder.open(bundles["vectors"], bundles["tokenizer"], threads=1) as vectors,
        Encoder.open(bundles["scores"], bundles["tokenizer"], threads=1) as scores,
        serving(create_encoder_app(vectors, MODEL)) as first,
        serving(create_encoder_app(scores, MODEL)) as second,
    ):
        yield {"vectors": first, "scores": second}


@pytest.fixture
def client(addresses: dict[str, str]) -> "Iterator[openai.OpenAI]":
    import openai

    url = f"{addresses['vectors']}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as created:
        yield created


def vector_of(text: str, size: int = SIZE) -> np.ndarray:
    rows = TABLE[[LETTERS.index(letter) for letter in text]].astype(float)
    vector = 2 * rows.mean(axis=0)[:size]
    return vector / np.linalg.norm(vector)


def score_of(query: str, document: str) -> float:
    rows = TABLE[[LETTERS.index(letter) for letter in f"{query}|{document}"]].astype(float)
    return float(1 / (1 + np.exp(-(rows.mean(axis=0) @ HEAD[:, 0]))))


def test_embeddings(client: "openai.OpenAI") -> None:
    texts = ["abc", "hello there", "x", "some", "a b c d e f"]
    # The client asks for base64 by itself.
    for form in ({}, {"encoding_format": "float"}):
        fields: dict[str, Any] = form
        created = client.embeddings.create(model=MODEL, input=texts, **fields)
        for each, text in zip(created.data, texts, strict=True):
            np.testing.assert_allclose(each.embedding, vector_of(text), atol=1e-6)
        assert [each.index for each in created.data] == list(range(len(texts)))
        assert created.usage.prompt_tokens == sum(map(len, texts))
    one = client.embeddings.create(model=MODEL, input="abc", dimensions=3)
    np.testing.assert_allclose(one.data[0].embedding, vector_of("abc", 3), atol=1e-6)
    tokens = client.embeddings.create(model=MODEL, input=[[0, 1, 2], [7]])
    np.testing.assert_allclose(tokens.data[0].embedding, vector_of("abc"), atol=1e-6)


def test_requests_at_once(client: "openai.OpenAI") -> None:
    texts = [LETTERS[i : i + 1 + i % 11] for i in range(40)]
    with ThreadPoolExecutor(16) as pool:
        results = pool.map(
            lambda text: client.embeddings.create(model=MODEL, input=text).data[0].embedding, texts
        )
        for result, text in zip(results, texts, strict=True):
            np.testing.assert_allclose(result, vector_of(text), atol=1e-6)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_reranking(addresses: dict[str, str], path: str) -> None:
    texts = ["abc", "hij klm", "", "zz", "abd"]
    body = {"model": MODEL, "query": "abd", "documents": [*texts[:3], {"text": "zz"}, "abd"]}
    result = plain_http.post(f"{addresses['scores']}{path}", json=body).json()
    expected = [score_of("abd", text) for text in texts]
    order = sorted(range(5), key=lambda index: -expected[index])
    assert [each["index"] for each in result["results"]] == order
    for each in result["results"]:
        assert each["relevance_score"] == pytest.approx(expected[each["index"]], abs=1e-6)
        assert each["document"]["text"] == texts[each["index"]]
    assert result["usage"]["total_tokens"] == sum(len(f"abd|{text}") for text in texts)
    short = {**body, "top_n": 2, "return_documents": False}
    result = plain_http.post(f"{addresses['vectors']}{path}", json=short).json()
    assert [list(each) for each in result["results"]] == [["index", "relevance_score"]] * 2
    assert result["results"][0]["index"] == 4
    assert result["results"][0]["relevance_score"] == pytest.approx(1)


def test_a_document_that_is_too_long_is_cut(addresses: dict[str, str]) -> None:
    body = {"query": "abd", "documents": ["efghijkl" + "z" * 30]}
    result = plain_http.post(f"{addresses['scores']}/v1/rerank", json=body).json()
    expected = score_of("abd", "efghijkl")
    assert result["results"][0]["relevance_score"] == pytest.approx(expected, abs=1e-6)
    assert result["usage"]["total_tokens"] == LONGEST


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("embeddings", {}, "input"),
        ("embeddings", [], None),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": ""}, "input"),
        ("embeddings", {"input": [""]}, "input"),
        ("embeddings", {"input": ["a", 1]}, "input"),
        ("embeddings", {"input": [[64]]}, "input"),
        ("embeddings", {"input": [-1]}, "input"),
        ("embeddings", {"input": [True]}, "input"),
        ("embeddings", {"input": ["a"] * 2049}, "input"),
        ("embeddings", {"input": "a" * 13}, None),
        ("embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("embeddings", {"input": "a", "dimensions": "8"}, "dimensions"),
        ("embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("rerank", {"documents": ["a"]}, "query"),
        ("rerank", {"query": "a"}, "documents"),
        ("rerank", {"query": "a", "documents": [1]}, "documents"),
        ("rerank", {"query": "a", "documents": "b"}, "documents"),
        ("rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        ("rerank", {"query": "a" * 12, "documents": ["b"]}, None),
        ("rerank", {"query": "a" * 500, "documents": ["b"]}, None),
    ],
    ids=str,
)
def test_requests_that_are_refused(
    addresses: dict[str, str], path: str, body: Any, field: str | None
) -> None:
    kind = "scores" if path == "rerank" else "vectors"
    result = plain_http.post(f"{addresses[kind]}/v1/{path}", json=body)
    assert (result.status_code, result.json()["error"]["param"]) == (400, field)


def test_a_reranker_has_no_vectors(addresses: dict[str, str]) -> None:
    result = plain_http.post(f"{addresses['scores']}/v1/embeddings", json={"input": "a"})
    assert result.status_code == 400
    assert plain_http.get(f"{addresses['scores']}/v1/models").json()["data"][0]["id"] == MODEL
    assert "relaxd_llm_requests_total" in plain_http.get(f"{addresses['scores']}/metrics").text


def test_a_text_that_fails_ends_no_other(
    bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, go, sizes = Model.run, threading.Event(), []

    def fail(self: Model, inputs: Any, out: Any = None) -> Any:
        assert go.wait(60)
        sizes.append(len(inputs["input_ids"]))
        if (inputs["input_ids"] == LETTERS.index("!")).any():
            raise ExecutionError("it failed")
        return run(self, inputs, out)

    monkeypatch.setattr(Model, "run", fail)
    with Encoder.open(bundles["vectors"], bundles["tokenizer"], threads=1) as encoder:
        texts = ["abc", "abd", "!", "abe", "x" * 9]
        futures = encoder.submit([encoder.encode(text) for text in texts])
        go.set()
        for future, text in zip(futures, texts, strict=True):
            if text == "!":
                assert isinstance(future.exception(60), ExecutionError)
            else:
                result = future.result(60)
                np.testing.assert_allclose(
                    result / np.linalg.norm(result), vector_of(text), atol=1e-6
                )
        assert max(sizes) > 1
    assert encoder.waiting == 0


def test_models_that_are_no_encoders(
    bundles: dict[str, Path], language_models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="is no encoder of tokens"):
        Encoder.open(language_models["filled"], bundles["tokenizer"])


def test_poolings(tmp_path: Path) -> None:
    assert read_pooling(tmp_path) is Pooling.MEAN
    (tmp_path / "1_Pooling").mkdir()
    path = tmp_path / "1_Pooling" / "config.json"
    for name, pooling in (
        ("mean_tokens", Pooling.MEAN),
        ("cls_token", Pooling.CLS),
        ("max_tokens", Pooling.MAX),
        ("lasttoken", Pooling.LAST),
    ):
        path.write_text(json.dumps({f"pooling_mode_{name}": True, "pooling_mode_other": False}))
        assert read_pooling(tmp_path) is pooling
    path.write_text(json.dumps({"pooling_mode_weightedmean_tokens": True}))
    with pytest.raises(InputError, match="pools in another way"):
        read_pooling(tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        read_pooling(tmp_path)
