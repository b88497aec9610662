"""Adapters of a compiled library: sixteen at once beside merged models, and while it serves."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import relaxd
from compiler.ir.files.model_file import LoadedModel, open_model
from relaxd.contract.options import MODULES, CompileOptions, Flavour, StateForm
from relaxd.errors import (
    AdapterError,
    AdapterInUseError,
    ExecutionError,
    InputError,
    UnknownAdapterError,
)
from relaxd.llm import Engine, Sampling
from relaxd.llm.generation import Finish, Piece
from relaxd.llm.server import create_app
from relaxd.llm.text import Text
from relaxd.loader.model import Model
from tests.compiler.building import build, report
from tests.compiler.ir.folder.decoding import compute_logits
from tests.compiler.ir.onnx.running import session_of
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import tokenizer
from tests.support.models import adapters as am
from tests.support.models import folders as fm

pytestmark = pytest.mark.slow

COUNT, CAPACITY, ANSWER = 16, 64, 12
DIMS: dict[str, Any] = {
    "batch_size": (1, COUNT + 1),
    "sequence_length": (1, 32),
    "past_sequence_length": (0, CAPACITY),
    "total_sequence_length": (1, CAPACITY),
    "adapters": (1, COUNT),
}
PROMPT = fm.TOKENS[:9]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    fm.write(folder, ["llama_wide"])
    return folder / "llama_wide"


@pytest.fixture(scope="module")
def bundle(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("bundle") / "out"
    options = CompileOptions(profile=False, state=StateForm.LIFTED, lora_rank=16)
    manifest = build(output, base, dims=DIMS, options=options)
    assert manifest.adapters is not None
    assert report(output, "numerics.json")["verdict"] == "passed"
    return output


@pytest.fixture(scope="module")
def model(bundle: Path) -> Model:
    return relaxd.load(bundle, threads=2)


def form_of(number: int) -> am.LoraForm:
    """Adapters of many ranks, for all matmuls or some."""
    modules = MODULES if number % 3 else ("q_proj", "v_proj")
    return am.LoraForm(rank=1 + number % 16, alpha=8 + number, modules=modules)


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [
        am.write_peft(folder / str(i), am.draw(base, form_of(i), i), form_of(i))
        for i in range(COUNT)
    ]


@pytest.fixture(scope="module")
def merged(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[LoadedModel]:
    folder = tmp_path_factory.mktemp("merged")
    loaded = []
    for i in range(COUNT):
        path = am.merge(base, am.draw(base, form_of(i), i), form_of(i), folder / str(i))
        opened = open_model(path)
        assert isinstance(opened, LoadedModel)
        loaded.append(opened)
    return loaded


def greedy(loaded: LoadedModel) -> list[int]:
    """Generate with ONNX Runtime, without a cache."""
    session: Any = session_of(loaded.proto)
    empty = {
        entry.name: np.zeros((1, entry.shape[1], 0, entry.shape[3]), np.float32)
        for entry in session.get_inputs()
        if entry.name.startswith("past")
    }
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + ANSWER:
        ids = np.array([tokens])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), **empty}
        tokens.append(int(session.run(["logits"], feed)[0][0, -1].argmax()))
    return tokens[len(PROMPT) :]


@pytest.fixture
def engine(model: Model, adapters: list[Path]) -> Iterator[Engine]:
    with Engine(model, sequences=COUNT + 1, capacity=CAPACITY) as created:
        for number, path in enumerate(adapters):
            created.load_adapter(f"lora{number}", path)
        yield created


def test_a_batch_of_sixteen_adapters_gives_the_logits_of_merged_models(
    base: Path, model: Model, merged: list[LoadedModel], engine: Engine
) -> None:
    stacks = engine._loaded_adapters().stacks
    state = model.state(entries=COUNT + 1, capacity=CAPACITY, adapters=stacks)
    for entry in range(1, COUNT + 1):
        state.adapt(entry, entry)
    parts = [fm.TOKENS[:9], fm.TOKENS[9:16], fm.TOKENS[16:]]
    steps = [state.step([part] * (COUNT + 1))["logits"] for part in parts]
    got = np.concatenate(steps, axis=1)
    wanted = [np.load(base / fm.LOGITS), *map(compute_logits, merged)]
    for logits, want in zip(got, wanted, strict=True):
        assert np.abs(logits - want).max() < 1e-4 * np.abs(want).max()
        assert want is wanted[0] or np.abs(want - wanted[0]).max() > 0.1


def test_sixteen_adapters_and_the_base_answer_at_once(
    base: Path, merged: list[LoadedModel], engine: Engine
) -> None:
    sampling = Sampling(max_tokens=ANSWER)
    names = [None, *(f"lora{number}" for number in range(COUNT))]
    answers = [engine.generate(PROMPT, sampling, adapter=name) for name in names]
    tokens = [[piece.token for piece in answer] for answer in answers]
    opened = open_model(base)
    assert isinstance(opened, LoadedModel)
    assert tokens == [greedy(each) for each in (opened, *merged)]
    assert len({tuple(each) for each in tokens}) > COUNT // 2
    # The same prompt by the same adapter alone takes what it left.
    again = engine.generate(PROMPT * 3, sampling, adapter="lora3")
    again.text()
    repeated = engine.generate(PROMPT * 3, sampling, adapter="lora3")
    other = engine.generate(PROMPT * 3, sampling, adapter="lora4")
    assert [p.token for p in repeated] == again.tokens
    other.text()
    assert (repeated.reused, other.reused) == (len(PROMPT) * 3 - 1, 0)


def test_adapters_come_and_go_while_others_answer(
    model: Model, merged: list[LoadedModel], adapters: list[Path]
) -> None:
    with Engine(model, sequences=4, capacity=CAPACITY, adapters=2) as engine:
        engine.load_adapter("first", adapters[0])
        stop = threading.Event()

        def answer(results: list[list[int]]) -> None:
            while not stop.is_set():
                generation = engine.generate(PROMPT, Sampling(max_tokens=ANSWER), adapter="first")
                generation.text()
                results.append(generation.tokens)

        results: list[list[int]] = []
        thread = threading.Thread(target=answer, args=(results,))
        thread.start()
        try:
            for number in (5, 6, 7, 5):
                engine.load_adapter("other", adapters[number])
                with pytest.raises(AdapterError, match="already"):
                    engine.load_adapter("other", adapters[1])
                with pytest.raises(AdapterError, match="slots for adapters are taken"):
                    engine.load_adapter("third", adapters[1])
                generation = engine.generate(PROMPT, Sampling(max_tokens=ANSWER), adapter="other")
                generation.text()
                assert generation.tokens == greedy(merged[number])
                engine.unload_adapter("other")
                with pytest.raises(UnknownAdapterError):
                    engine.generate(PROMPT, adapter="other")
        finally:
            stop.set()
            thread.join()
        assert results
        assert all(tokens == greedy(merged[0]) for tokens in results)


def test_an_adapter_in_use_stays(engine: Engine) -> None:
    released = threading.Event()

    def listen(piece: Piece) -> None:
        released.wait(60)

    generation = engine.generate(PROMPT, Sampling(max_tokens=2), listen, adapter="lora1")
    with pytest.raises(AdapterInUseError, match="1 completions use"):
        engine.unload_adapter("lora1")
    released.set()
    while generation.finish is None:
        released.wait(0.01)
    assert generation.finish is Finish.LENGTH
    engine.unload_adapter("lora1")


def test_adapters_that_do_not_fit_are_refused(engine: Engine, base: Path, tmp_path: Path) -> None:
    engine.unload_adapter("lora0")
    form = am.LoraForm(rank=24, modules=("q_proj",))
    halves = am.draw(base, form, 1)
    with pytest.raises(AdapterError, match=r"rank 24.*up to 16") as caught:
        engine.load_adapter("a", am.write_peft(tmp_path / "a", halves, form))
    assert caught.value.reason == "rank"
    form = am.LoraForm(rank=4, modules=("q_proj",))
    halves = {name: (a[:, :-1], b) for name, (a, b) in am.draw(base, form, 1).items()}
    with pytest.raises(AdapterError, match="of another model") as caught:
        engine.load_adapter("b", am.write_peft(tmp_path / "b", halves, form))
    assert caught.value.reason == "base"
    halves = {name.replace("layers.2", "layers.9"): p for name, p in am.draw(base, form, 1).items()}
    with pytest.raises(AdapterError, match="layer 9") as caught:
        engine.load_adapter("c", am.write_peft(tmp_path / "c", halves, form))
    assert caught.value.reason == "targets"
    with pytest.raises(AdapterError, match="does not exist"):
        engine.load_adapter("d", tmp_path / "nowhere")


def test_the_library_refuses_numbers_of_no_adapter(model: Model) -> None:
    state = model.state(entries=1, capacity=16)
    with pytest.raises(UnknownAdapterError, match="slots for 1"):
        state.adapt(0, 2)
    for number in (-1, 2, 2**31 - 1):
        state._adapters._numbers[0] = number
        with pytest.raises((ExecutionError, InputError), match="number of an adapter"):
            state.step([[1, 2]])
    state.adapt(0, 1)
    assert np.isfinite(state.step([[1, 2]])["logits"]).all()


def test_tvms_virtual_machine_has_adapters_too(
    base: Path, adapters: list[Path], merged: list[LoadedModel], tmp_path: Path
) -> None:
    options = CompileOptions(
        profile=False, verify=False, state=StateForm.LIFTED, lora_rank=16, flavour=Flavour.VM
    )
    build(tmp_path / "out", base, dims=DIMS, options=options)
    with Engine.open(tmp_path / "out", threads=1, sequences=3, capacity=CAPACITY) as engine:
        engine.load_adapter("a", adapters[4])
        generation = engine.generate(PROMPT, Sampling(max_tokens=ANSWER), adapter="a")
        generation.text()
        assert generation.tokens == greedy(merged[4])


def test_an_endpoint_with_adapters(
    model: Model, adapters: list[Path], merged: list[LoadedModel], tmp_path: Path
) -> None:
    text = Text(tokenizer(tmp_path / "tokenizer"))
    with Engine(model, text, sequences=4, capacity=CAPACITY) as engine:
        app = create_app(engine, "base", lora_updates=True)
        with serving(app) as address, httpx.Client(base_url=address) as client:
            _drive(client, adapters)
            document = {"model": "sql", "prompt": PROMPT, "max_tokens": ANSWER, "temperature": 0}
            answer = client.post("/v1/completions", json={**document, "logprobs": 0}).json()
            assert answer["model"] == "sql"
            wanted = "".join(text.decode([token]) for token in greedy(merged[4]))
            assert answer["choices"][0]["text"] == wanted
            unload = client.post("/v1/unload_lora_adapter", json={"lora_name": "sql"})
            assert unload.status_code == 200
            gone = client.post("/v1/completions", json=document)
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
        with serving(create_app(engine, "base")) as address:
            fixed = httpx.post(f"{address}/v1/unload_lora_adapter", json={"lora_name": "sql"})
            assert fixed.status_code == 404


def _drive(client: httpx.Client, adapters: list[Path]) -> None:
    """Load an adapter, and be refused others."""
    document = {"lora_name": "sql", "lora_path": str(adapters[4])}
    loaded = client.post("/v1/load_lora_adapter", json=document)
    assert (loaded.status_code, loaded.text) == (200, "the adapter 'sql' is loaded")
    again = client.post("/v1/load_lora_adapter", json=document)
    assert (again.status_code, again.json()["error"]["code"]) == (400, "run.adapter")
    taken = client.post("/v1/load_lora_adapter", json={**document, "lora_name": "base"})
    assert taken.status_code == 400
    nameless = client.post("/v1/load_lora_adapter", json={"lora_path": str(adapters[4])})
    assert nameless.json()["error"]["param"] == "lora_name"
    models = client.get("/v1/models").json()["data"]
    assert [(one["id"], one.get("parent")) for one in models] == [("base", None), ("sql", "base")]
    other = client.post("/v1/completions", json={"model": "else", "prompt": [1], "max_tokens": 1})
    assert other.status_code == 404
