"""One engine in a process of its own: `python -m benchmarks.speech.engines ENGINE FOLDER` reads
spectra.npz there and prints the processor seconds of each sound's halves as JSON lines, a round
for every line that it reads.

ENGINE is `relaxd BUNDLES`, a folder with `encoder`, `decoder` and `export`, or `ctranslate2 MODEL
TYPE`, a folder and what it computes in.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROMPT, END = [50257, 50362], 50256
Stages = tuple[Callable[[Any], Any], Callable[[Any], list[int]]]


def relaxd(bundles: str) -> Stages:
    """Ours."""
    from relaxd.loader.opening import load

    encoder, decoder = (load(Path(bundles) / half, threads=1) for half in ("encoder", "decoder"))
    settings = json.loads((Path(bundles) / "export/generation_config.json").read_text())
    never, at_first = settings["suppress_tokens"], settings["begin_suppress_tokens"]
    state = decoder.state()

    def write(created: Any) -> list[int]:
        state.reset()
        state.hold(created)
        tokens, new = [], PROMPT
        while True:
            scores = state.step([new])["logits"][0, -1]
            scores[never if tokens else [*never, *at_first]] = -np.inf
            new = [int(scores.argmax())]
            if new[0] == END:
                return tokens
            tokens += new

    return lambda features: encoder.run([features]), write


def ctranslate2(model: str, kind: str) -> Stages:
    """The package's engine; it never chooses what the model's config.json bars."""
    import ctranslate2 as engine

    whisper = engine.models.Whisper(model, compute_type=kind, intra_threads=1)

    def hear(features: Any) -> Any:
        return whisper.encode(engine.StorageView.from_array(features))

    def write(created: Any) -> list[int]:
        (result,) = whisper.generate(created, [PROMPT], beam_size=1, sampling_temperature=0)
        return list(result.sequences_ids[0])

    return hear, write


def main(name: str, *arguments: str) -> None:
    """Rounds by the engine until nothing is read."""
    *rest, folder = arguments
    engines: dict[str, Callable[..., Stages]] = {"relaxd": relaxd, "ctranslate2": ctranslate2}
    hear, write = engines[name](*rest)
    sounds = dict(np.load(Path(folder) / "spectra.npz"))
    for _ in sys.stdin:
        results = {}
        for sound, features in sounds.items():
            began = time.process_time()
            created = hear(features)
            received = time.process_time()
            tokens = write(created)
            results[sound] = [received - began, time.process_time() - received, tokens]
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
