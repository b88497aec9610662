"""Transcribes speech as Whisper does without timestamps, by the most probable token each time."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from relaxd.errors import InputError
from relaxd.loader.model import Model
from relaxd.loader.state import State
from relaxd.loading import load
from relaxd.speech.features import log_mel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Transcript:
    """The text of a recording; tokens: without the prompt and the end-of-text token."""

    text: str
    tokens: tuple[int, ...]


class Vocabulary:
    """A model's tokenizer.json, and the tokens that the generation_config.json beside it, where
    there is one, never lets it choose.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise InputError(
                f"{folder} has no {path.name}", hint="name the folder of the model's tokenizer"
            )
        self._tokenizer: Any = Tokenizer.from_file(str(path))
        settings = folder / "generation_config.json"
        self._settings = json.loads(settings.read_text()) if settings.is_file() else {}
        self.end = self._token("<|endoftext|>")
        self.suppressed = list(self._settings.get("suppress_tokens") or ())
        self.suppressed_first = [
            *self.suppressed,
            *(self._settings.get("begin_suppress_tokens") or ()),
        ]

    def prompt(self, language: str | None, task: str) -> list[int]:
        """The tokens that a text begins behind; language: "en", None for a model of English alone.

        Raises InputError for words that the tokenizer does not know.
        """
        if language is None and self._settings.get("is_multilingual"):
            raise InputError("the model knows several languages", hint='give one, as "en"')
        named = [] if language is None else [f"<|{language}|>", f"<|{task}|>"]
        words = ["<|startoftranscript|>", *named, "<|notimestamps|>"]
        return [self._token(word) for word in words]

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def _token(self, word: str) -> int:
        token = self._tokenizer.token_to_id(word)
        if token is None:
            raise InputError(f"the tokenizer has no {word}")
        return int(token)


class Whisper:
    """An encoder, and a decoder with an in-place KV cache; for one thread at a time.

    Compile the decoder with `state=lifted`. The encoder's outputs have the names of the decoder's
    inputs, with `present` in place of `past_key_values`. first: a decoder without a KV cache that
    computes them instead of the encoder, as optimum exports it.
    """

    def __init__(
        self, encoder: Model, decoder: Model, vocabulary: Vocabulary, first: Model | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self._encoder, self._first, self._state = encoder, first, decoder.state()
        self._bands = _bands_of(encoder)
        wanted = {spec.name for spec in self._state.free}
        offered = {
            spec.name: spec.name.replace("present", "past_key_values")
            for spec in (first or encoder).outputs
        }
        self._handed = {name: taken for name, taken in offered.items() if taken in wanted}
        missing = sorted(wanted - set(self._handed.values()))
        if len(missing) != 1:
            raise InputError(
                f"the decoder takes {', '.join(missing)}: one of them may be tokens, the others "
                f"have to come of the encoder, which gives {', '.join(offered)}",
                hint="give the bundle of the decoder without a KV cache as `first`",
            )

    @classmethod
    def open(
        cls,
        encoder: str | PathLike[str],
        decoder: str | PathLike[str],
        tokenizer: str | PathLike[str],
        *,
        first: str | PathLike[str] | None = None,
        threads: int | None = None,
    ) -> "Whisper":
        """By bundles, and the folder of tokenizer.json and generation_config.json."""
        vocabulary = Vocabulary(Path(tokenizer))
        first_step = load(first, threads=threads) if first else None
        encodes, decodes = (load(path, threads=threads) for path in (encoder, decoder))
        return cls(encodes, decodes, vocabulary, first_step)

    def transcribe(
        self, samples: Any, *, language: str | None = None, task: str = "transcribe"
    ) -> Transcript:
        """The text of a sound of at most 30 s: floats [samples], one channel of 16 kHz.

        language: of a model that knows several, as "en"; task: "translate" gives English. Raises
        InputError for other sounds and unknown languages.
        """
        prompt, state = self.vocabulary.prompt(language, task), self._state
        state.reset()
        state.hold(self._encode(samples, prompt[0]))
        logits, tokens = _step(state, prompt), list[int]()
        logits[self.vocabulary.suppressed_first] = -np.inf
        while (token := int(np.argmax(logits))) != self.vocabulary.end:
            tokens.append(token)
            if state.lengths[0] == state.capacity:
                break
            logits = _step(state, [token])
            logits[self.vocabulary.suppressed] = -np.inf
        return Transcript(self.vocabulary.decode(tokens), tuple(tokens))

    def _encode(self, samples: Any, token: int) -> dict[str, Array]:
        """Compute the decoder's inputs that are constant while it generates."""
        outputs = self._encoder.run([log_mel(samples, self._bands)])
        if self._first is not None:
            (states,) = outputs.values()
            outputs = self._first.run({"input_ids": [[token]], "encoder_hidden_states": states})
        return {taken: outputs[name] for name, taken in self._handed.items()}


def _step(state: State, tokens: list[int]) -> Array:
    """Logits [vocabulary] after the last token."""
    logits: Array = state.step([tokens])["logits"][0, -1]
    return logits


def _bands_of(encoder: Model) -> int:
    (features, *others) = encoder.inputs
    if others or len(features.shape) != 3 or features.shape[1].symbol:
        raise InputError(
            f"the encoder takes {', '.join(map(str, encoder.inputs))}, it must be one input "
            "[batch, bands, frames]"
        )
    return features.shape[1].evaluate({})
