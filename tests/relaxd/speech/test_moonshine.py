"""Moonshine tiny, in the 8 bits that its package ships for ONNX Runtime: an encoder of sounds of
any length, and a merged decoder.

Each layer rounds what it multiplies to 8 bits, so that a difference of one part in a million in the
samples moves the encoder's states by 4 %, in ONNX Runtime alone too, and may change a word.
"""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import relaxd
from compiler import compile_model
from tests.relaxd.speech.utterances import SENTENCES, spoken
from tests.support.models.known import Feed, package_model
from tests.support.models.ort import onnx_of

PACKAGE = "moonshine_voice"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed"),
    pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed"),
]

PARTS = {
    "encoder_model": {"batch_size": "1:2", "encoder_sequence_length": "2000:480000"},
    "decoder_model_merged": {
        "batch_size": "1:2",
        "decoder_sequence_length": "1:16",
        "encoder_sequence_length": "1:1250",
        "past_decoder_sequence_length": "0:200",
    },
}
"""By file, the dims: samples of up to 30 s, of which the encoder makes one row of 384."""
BEGIN, END, MOST = 1, 2, 60
HEADS, SIZE = 8, 36

Half = Callable[[Feed], Feed]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("moonshine")
    for name, dims in PARTS.items():
        model = onnx_of(store_array(name))
        options = {"profile": False}
        compile_model(model, output=folder / name, target="native", dims=dims, options=options)
    return {name: folder / name for name in PARTS}


def store_array(name: str) -> Path:
    return package_model(PACKAGE, f"assets/tiny-en/{name}.ort")


def by_onnxruntime(name: str) -> Half:
    """The file itself, while what is compiled was converted; without sums that overflow where the
    processor adds up pairs of products in 16 bits.
    """
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(store_array(name), options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, feed), strict=True))


def encode_sound(encoder: Half, sound: np.ndarray) -> np.ndarray:
    """float32 [1, rows, 288]."""
    samples = sound[None]
    mask = np.ones(samples.shape, np.int64)
    return encoder({"input_values": samples, "attention_mask": mask})["last_hidden_state"]


def write(decoder: Half, states: np.ndarray) -> list[int]:
    """The likeliest tokens, up to the one that ends a text.

    The first step makes keys and values of the states; others give these without rows.
    """
    mask, tokens = np.ones(states.shape[:2], np.int64), [BEGIN]
    kinds = [f"{half}.{part}" for half in ("decoder", "encoder") for part in ("key", "value")]
    names = [f"{layer}.{kind}" for layer in range(6) for kind in kinds]
    rows = {name: states.shape[1] if "encoder" in name else 0 for name in names}
    past = {name: np.zeros((1, HEADS, rows[name], SIZE), np.float32) for name in names}
    while tokens[-1] != END and len(tokens) < MOST:
        further = len(tokens) > 1
        outputs = decoder(
            {
                "encoder_attention_mask": mask,
                "encoder_hidden_states": states,
                "input_ids": np.array([tokens[-1:]], np.int64),
                "use_cache_branch": np.array([further]),
                **{f"past_key_values.{name}": past[name] for name in names},
            }
        )
        retained = [name for name in names if not (further and "encoder" in name)]
        past |= {name: outputs[f"present.{name}"] for name in retained}
        tokens.append(int(outputs["logits"][0, -1].argmax()))
    return tokens


def text_of(tokens: list[int]) -> str:
    """By the package's table: the length of each token's bytes in one byte or two, then these."""
    table, words, index = package_model(PACKAGE, "assets/tiny-en/tokenizer.bin").read_bytes(), [], 0
    while index < len(table):
        length, index = table[index], index + 1
        if length >= 128:
            length, index = table[index] * 128 + length - 128, index + 1
        words.append(table[index : index + length].decode(errors="replace"))
        index += length
    return "".join(words[token] for token in tokens[1:-1]).replace("\u2581", " ").strip()


def apart(lhs: np.ndarray, rhs: np.ndarray) -> float:
    """Their difference, of the size of one of them."""
    return float(np.linalg.norm(lhs - rhs) / np.linalg.norm(lhs))


@pytest.mark.parametrize("name", SENTENCES)
def test_states_are_as_near_as_those_of_a_sound_that_is_almost_the_same(
    bundles: dict[str, Path], tmp_path: Path, name: str
) -> None:
    sound, theirs = spoken(name, tmp_path), by_onnxruntime("encoder_model")
    states = encode_sound(theirs, sound)
    noise = np.random.default_rng(0).standard_normal(sound.shape)
    moved = apart(states, encode_sound(theirs, (sound * (1 + 1e-4 * noise)).astype(np.float32)))
    result = apart(
        states, encode_sound(relaxd.load(bundles["encoder_model"], threads=1).run, sound)
    )
    print(f"{result:.4f}, a sound almost the same {moved:.4f}")
    assert result < 1.5 * moved < 0.08


@pytest.mark.parametrize("name", SENTENCES)
def test_logits_after_the_same_tokens_are_those_of_onnxruntime(
    bundles: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Where one value lies between two bytes, the last bit of a sum moves the logits by 2 %, which
    changes a token whose lead is smaller. At which steps depends on the processor's order of
    adding; the others agree to float32, and a fault of a kernel would show in all of them.
    """
    theirs = by_onnxruntime("decoder_model_merged")
    ours = relaxd.load(bundles["decoder_model_merged"], threads=1).run
    result: list[float] = []

    def both(feed: Feed) -> Feed:
        wanted = theirs(feed)
        result.append(apart(wanted["logits"], ours(feed)["logits"]))
        return wanted

    tokens = write(both, encode_sound(by_onnxruntime("encoder_model"), spoken(name, tmp_path)))
    assert tokens[-1] == END
    print(result)
    assert max(result) < 0.05
    assert float(np.median(result)) < 1e-6


@pytest.mark.parametrize("name", SENTENCES)
def test_the_text_is_what_is_said(bundles: dict[str, Path], tmp_path: Path, name: str) -> None:
    encoder, decoder = (relaxd.load(bundles[half], threads=1).run for half in PARTS)
    text = text_of(write(decoder, encode_sound(encoder, spoken(name, tmp_path))))
    print(text)
    message, wrote = (line.lower().split() for line in (SENTENCES[name][2], text))
    assert sum(lhs != rhs for lhs, rhs in zip(message, wrote, strict=True)) <= 2, text


@pytest.mark.parametrize("half", PARTS)
def test_a_build_is_verified(bundles: dict[str, Path], half: str) -> None:
    numerics = json.loads((bundles[half] / "numerics.json").read_text())
    assert numerics["status"] == "executed"
    # Dynamically quantized: a rounding that goes the other way moves rows by a tenth of the spread.
    assert numerics["verdict"] in ("passed", "statistical")
