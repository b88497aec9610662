"""How tokens are chosen and what is refused, by models that only look like compiled ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import InputError
from relaxd.speech import Whisper
from relaxd.speech.whisper import Vocabulary

SPECIAL = [
    "<|endoftext|>", "<|startoftranscript|>", "<|de|>", "<|translate|>", "<|notimestamps|>",
]  # fmt: skip
END, START, GERMAN, TRANSLATE, PLAIN = range(3, 8)
WORDS = 8
KEY = "past_key_values.0.encoder.key"


def spec(text: str) -> TensorSpec:
    return TensorSpec.of(*text.split(": "))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    created = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2}, [], unk_token="a"))
    created.decoder = decoders.Fuse()
    created.add_special_tokens(SPECIAL)
    created.save(str(tmp_path / "tokenizer.json"))
    settings = {"suppress_tokens": [2], "begin_suppress_tokens": [0, END]}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    return tmp_path


class Encoder:
    def __init__(self, outputs: Sequence[str], inputs: Sequence[str] = ()) -> None:
        arguments = inputs or ["features: float32[batch,80,3000]"]
        self.inputs, self.outputs = tuple(map(spec, arguments)), tuple(map(spec, outputs))

    def run(self, arguments: Any) -> dict[str, Any]:
        features = (
            arguments[0] if isinstance(arguments, list) else arguments["encoder_hidden_states"]
        )
        self.given = arguments
        return {output.name: features + 1 for output in self.outputs}


class State:
    """Prefers the tokens of `wanted`, one each step, from the best to the worst."""

    def __init__(self, wanted: Sequence[Sequence[int]], capacity: int) -> None:
        self.free = (spec("input_ids: int64[batch,new]"), spec(f"{KEY}: float32[batch,1,4,2]"))
        self.capacity, self._wanted = capacity, wanted
        self.reset()

    def reset(self) -> None:
        self.steps: list[list[int]] = []

    @property
    def lengths(self) -> tuple[int, ...]:
        return (sum(map(len, self.steps)),)

    def hold(self, inputs: Mapping[str, Any]) -> None:
        self.held = inputs

    def step(self, tokens: list[list[int]]) -> dict[str, Any]:
        scores = np.zeros((1, len(tokens[0]), WORDS), np.float32)
        for position, token in enumerate(self._wanted[len(self.steps)]):
            scores[0, -1, token] = 9 - position
        self.steps.append(tokens[0])
        return {"logits": scores}


def open_page(folder: Path, state: State, encoder: Any = None, first: Any = None) -> Whisper:
    decoder: Any = SimpleNamespace(state=lambda: state)
    arguments: Any = encoder or Encoder([f"{KEY}: float32[batch,1,4,2]"])
    return Whisper(arguments, decoder, Vocabulary(folder), first)


def test_the_best_token_that_may_be_chosen_goes_in_until_the_text_ends(folder: Path) -> None:
    state = State([[END, 0, 2, 1], [2, 1], [0], [END]], capacity=9)
    whisper = open_page(folder, state)
    for _ in range(2):
        created = whisper.transcribe(np.zeros(80))
        assert (created.text, created.tokens) == ("bba", (1, 1, 0))
        assert state.steps == [[START, PLAIN], [1], [1], [0]]
        assert set(state.held) == {KEY}
        assert np.all(state.held[KEY] == -0.5)


def test_a_text_ends_where_the_caches_are_full(folder: Path) -> None:
    state = State([[1]] * 9, capacity=5)
    assert open_page(folder, state).transcribe(np.zeros(80)).text == "bbbb"
    assert state.lengths == (5,)


def test_languages(folder: Path) -> None:
    state = State([[END]] * 2, capacity=9)
    (folder / "generation_config.json").write_text(json.dumps({"is_multilingual": True}))
    whisper = open_page(folder, state)
    assert whisper.transcribe(np.zeros(80), language="de", task="translate").tokens == ()
    assert state.steps == [[START, GERMAN, TRANSLATE, PLAIN]]
    with pytest.raises(InputError, match="knows several languages"):
        whisper.transcribe(np.zeros(80))
    with pytest.raises(InputError, match=r"no <\|fr\|>"):
        whisper.transcribe(np.zeros(80), language="fr")


def test_a_first_decoder_makes_what_the_encoder_does_not_give(folder: Path) -> None:
    encoder = Encoder(["last_hidden_state: float32[batch,1500,8]"])
    first = Encoder(["logits: float32[batch,1,8]", "present.0.encoder.key: float32[batch,1,4,2]"])
    state = State([[END, 1], [END]], capacity=9)
    whisper = open_page(folder, state, encoder, first)
    assert whisper.transcribe(np.zeros(80)).text == "b"
    assert np.all(state.held[KEY] == 0.5)
    assert first.given["input_ids"] == [[START]]
    with pytest.raises(InputError, match="which gives last_hidden_state") as caught:
        open_page(folder, state, encoder)
    assert "`first`" in str(caught.value.hint)


def test_what_is_no_encoder_or_tokenizer(folder: Path, tmp_path: Path) -> None:
    tokens = Encoder([f"{KEY}: float32[batch,1,4,2]"], ["ids: int64[batch,seq]"])
    with pytest.raises(InputError, match="the encoder takes ids"):
        open_page(folder, State([], 1), tokens)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        Vocabulary(folder)
