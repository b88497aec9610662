"""Run transformers' Whisper in a process of its own, as torch stays out of the tests':
`python -m tests.relaxd.speech.reference MODEL.BIN SPECTRA.npz FOLDER`.

FOLDER gets the model as transformers saves it, and `answers.npz`: of each of the spectra the tokens
behind PROMPT, and the scores [tokens + 1, words] that they and the end of the text were chosen by.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.relaxd.speech import weights

PROMPT, END, MOST = [50257, 50362], 50256, 60


def suppress(model: Path) -> dict[str, list[int]]:
    """The settings of generation_config.json."""
    settings = json.loads(model.with_name("config.json").read_text())
    names = {"suppress_tokens": "suppress_ids", "begin_suppress_tokens": "suppress_ids_begin"}
    return {name: settings[arguments] for name, arguments in names.items()}


def answer(
    whisper: Any, features: np.ndarray, never: dict[str, list[int]]
) -> tuple[list[int], np.ndarray]:
    """Tokens and scores; each step computes all tokens anew."""
    received = whisper.get_encoder()(torch.from_numpy(features))
    tokens: list[int] = []
    while True:
        ids = torch.tensor([[*PROMPT, *tokens]])
        logits = whisper(encoder_outputs=received, decoder_input_ids=ids, use_cache=False).logits[0]
        scores = logits[-1].clone()
        scores[never["suppress_tokens"]] = -torch.inf
        if not tokens:
            scores[never["begin_suppress_tokens"]] = -torch.inf
        token = int(scores.argmax())
        if token == END or len(tokens) == MOST:
            return tokens, logits[len(PROMPT) - 1 :].numpy()
        tokens.append(token)


def main(model: Path, spectra: Path, folder: Path) -> None:
    whisper = weights.whisper(weights.read(model))
    whisper.save_pretrained(folder)
    results = {}
    with torch.no_grad():
        for name, features in np.load(spectra).items():
            tokens, scores = answer(whisper, features, suppress(model))
            results |= {f"{name}.tokens": np.array(tokens), f"{name}.scores": scores}
    np.savez(folder / "answers.npz", **results)
    (folder / "generation_config.json").write_text(json.dumps(suppress(model)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
