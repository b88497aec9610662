"""Answers several requests at once: a thread lets them in by their priorities, and computes their
tokens.
"""

import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from relaxd.errors import CapacityError, ClosedError, InputError, OverloadError
from relaxd.llm.adapters import LoadedAdapter, LoadedAdapters
from relaxd.llm.batch import Batch, failure_of
from relaxd.llm.cache_memory import CacheMemory, CachePages, pages_of
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.grammar import Grammar
from relaxd.llm.matching import Grammars, Matcher
from relaxd.llm.sampling import Sampling
from relaxd.llm.slots import logits_of, most_rows, vocabulary_of
from relaxd.llm.speculation import Speculation, make_speculator
from relaxd.llm.text import TOKENIZER, Text
from relaxd.llm.tools import CallForm
from relaxd.llm.waiting import Waiting
from relaxd.loader.model import Model
from relaxd.loading import load

_PROMPT_PIECE = 128
_GREEDY = Sampling()
_LONGEST_WAIT = 60
_DEFAULT_CACHE = CacheMemory()
_NOTHING: Mapping[str, object] = {}
_ADAPTERS = 16
_MOST_BYTES = 4
"""Of a character in UTF-8."""


class Engine:
    """A language model that answers; `generate` may be called from any thread, `close` ends all.

    sequences: how many are answered at once; waiting: how many more may wait for a place;
    piece: tokens of a prompt between two tokens of other answers; sharing: whether a prompt takes
    the rows that another one with the same beginning left.
    speculate: how tokens are guessed ahead, which changes no answer; draft: the smaller model with
    the same tokens that `Source.DRAFT` asks.
    adapters: how many low-rank adapters may be loaded, of a model that takes some.
    cache: the memory of the KV cache, and whether it is in pages.
    """

    def __init__(
        self,
        model: Model,
        text: Text | None = None,
        *,
        sequences: int | None = None,
        capacity: int | None = None,
        waiting: int = 64,
        piece: int = _PROMPT_PIECE,
        sharing: bool = True,
        speculate: Speculation | None = None,
        draft: Model | None = None,
        adapters: int = _ADAPTERS,
        cache: CacheMemory = _DEFAULT_CACHE,
    ) -> None:
        self.model = model
        self.text = text
        self._adapters = _adapters_of(model, adapters)
        stacks = self._adapters.stacks if self._adapters is not None else None
        slots = cache.open(model, (sequences, capacity), stacks, share=sharing)
        self._slots = slots
        self._capacity, self._sequences = slots.capacity, slots.count
        self._vocabulary = vocabulary_of(model)
        self._last_logits_alone = str(logits_of(model).shape[1]) == "1"
        self._piece = min(piece, most_rows(model) or piece)
        speculator = None if speculate is None else make_speculator(model, slots, speculate, draft)
        self._batch = Batch(slots, self._piece, speculator)
        self._grammars: Grammars | None = None
        self._compiling = threading.Lock()
        self._waiting = Waiting()
        self._most_waiting = waiting
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="relaxd-llm", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        bundle: str | PathLike[str],
        tokenizer: str | PathLike[str] | None = None,
        *,
        model: Model | None = None,
        threads: int | None = None,
        sequences: int | None = None,
        capacity: int | None = None,
        waiting: int = 64,
        sharing: bool = True,
        speculate: Speculation | None = None,
        draft: str | PathLike[str] | None = None,
        adapters: int = _ADAPTERS,
        cache: CacheMemory = _DEFAULT_CACHE,
    ) -> "Engine":
        """An engine of a bundle and the folder of its tokenizer, by default the bundle's own.

        model: the bundle, where it is loaded already; draft: the bundle of the smaller model.
        """
        folder = Path(bundle if tokenizer is None else tokenizer)
        text = Text(folder) if tokenizer is not None or (folder / TOKENIZER).is_file() else None
        if text is not None and draft is not None and (Path(draft) / TOKENIZER).is_file():
            text.check_same(Text(Path(draft)))
        return cls(
            model or load(bundle, threads=threads),
            text,
            sequences=sequences,
            capacity=capacity,
            waiting=waiting,
            sharing=sharing,
            speculate=speculate,
            draft=None if draft is None else load(draft, threads=threads),
            adapters=adapters,
            cache=cache,
        )

    @property
    def adapters(self) -> list[LoadedAdapter]:
        """The adapters that are loaded."""
        return [] if self._adapters is None else list(self._adapters)

    @property
    def takes_adapters(self) -> bool:
        """True if the model takes adapters."""
        return self._adapters is not None

    def load_adapter(self, name: str, path: str | PathLike[str]) -> None:
        """Load an adapter, a folder of PEFT's or a GGUF file, for completions that name it, while
        others run. Raises AdapterError for one that does not fit the model, for a name that is
        taken, and where no slot is free.
        """
        self._loaded_adapters().load(name, Path(path))

    def unload_adapter(self, name: str) -> None:
        """Drop an adapter; raises AdapterError where there is none, or completions use it."""
        self._loaded_adapters().unload(name)

    def _loaded_adapters(self) -> LoadedAdapters:
        if self._adapters is None:
            # Raises the error that says why.
            return LoadedAdapters(self.model.adapters(1))
        return self._adapters

    @property
    def capacity(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self._capacity

    @property
    def most_requests(self) -> int:
        """How many requests run and wait at most."""
        return self._sequences + self._most_waiting

    @property
    def longest_prompt(self) -> int | None:
        """The most bytes of a prompt, of which more do not fit; None without a tokenizer."""
        return None if self.text is None else self.capacity * self.text.longest_token

    @property
    def call_form(self) -> CallForm:
        """How the model writes calls of tools; raises InputError where it writes none."""
        if (form := self._text().call_form) is None:
            raise InputError(
                "the model's template takes no tools, or has calls in a form that is not read",
                hint="leave out tools, or set tool_choice to none",
                field="tools",
            )
        return form

    def has_compiled(self, grammar: Grammar) -> bool:
        """True if the grammar is compiled, so that a completion with it begins at once."""
        return self._grammars is not None and grammar in self._grammars

    @property
    def load(self) -> tuple[int, int]:
        """How many requests are answered, and how many wait."""
        with self._changed:
            return self._batch.count, len(self._waiting)

    @property
    def cache_usage(self) -> float:
        """The share of the KV cache that running sequences fill."""
        return self._batch.cache_usage

    @property
    def cache_pages(self) -> CachePages | None:
        """The pages of the KV cache now; None where it has none."""
        return pages_of(self._slots)

    def check_load(self) -> None:
        """Raises what `generate` would raise now whatever the prompt: ClosedError, or OverloadError
        where too many requests wait.
        """
        if self._closed:
            raise ClosedError("the engine is closed", retry_after=self._retry_after())
        if len(self._waiting) >= self._most_waiting:
            raise OverloadError(
                f"{len(self._waiting)} requests wait already",
                hint="try again later",
                retry_after=self._retry_after(),
            )

    def generate(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling = _GREEDY,
        on_token: Callable[[Piece], None] | None = None,
        *,
        priority: int = 0,
        shown: frozenset[int] = frozenset(),
        adapter: str | None = None,
        heard: Callable[[Piece], None] | None = None,
    ) -> Generation:
        """Begins an answer to a text or to tokens. on_token: takes the pieces in place of the
        iterator, in the engine's thread. priority: which requests go first, the greatest ones;
        where no slot is free, an answer of a lower priority waits until there is one again.
        shown: special tokens that are part of the text. adapter: the name of one that is loaded.
        heard: the name of `on_token` before 0.2, with a warning.

        Raises CapacityError for a prompt that the caches do not hold, OverloadError where too many
        wait, ClosedError behind `close`, InputError for an empty prompt, GrammarError for a grammar
        that cannot be followed, AdapterError for an unknown adapter.
        """
        on_token = _renamed(on_token, heard)
        self.check_load()
        tokens = self.encode(prompt)
        self._check_sampling(sampling)
        ends = self.text.ends if self.text else frozenset()
        matcher = self._matcher(sampling)
        generation = Generation(
            tokens,
            sampling,
            self.text,
            ends,
            on_token,
            matcher=matcher,
            priority=priority,
            shown=shown,
        )
        with self._changed:
            self.check_load()
            if adapter is not None:
                generation.adapter = self._loaded_adapters().lease(adapter, generation)
            self._waiting.add(generation)
            self._changed.notify_all()
        return generation

    def chat(
        self,
        messages: Sequence[dict[str, object]],
        sampling: Sampling = _GREEDY,
        on_token: Callable[[Piece], None] | None = None,
        *,
        priority: int = 0,
        adapter: str | None = None,
        heard: Callable[[Piece], None] | None = None,
    ) -> Generation:
        """Begins the assistant's answer to a conversation; raises as `generate` does."""
        on_token = _renamed(on_token, heard)
        self.check_load()
        tokens = self.encode_chat(messages)
        return self.generate(tokens, sampling, on_token, priority=priority, adapter=adapter)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] = (),
        variables: Mapping[str, object] = _NOTHING,
    ) -> list[int]:
        """The tokens of a conversation; tools: documents of those that it offers; variables: others
        that the model's template reads. Raises InputError, CapacityError.
        """
        if len(messages) > self.capacity:
            raise CapacityError(len(messages), self.capacity)
        values = [value for message in messages for value in message.values()]
        self._check_bytes([value for value in values if isinstance(value, str)])
        prompt = self._text().render(messages, tools, variables)
        self._check_bytes([prompt])
        return self._text().encode(prompt, special=False)

    def encode(self, prompt: str | Sequence[int], *, special: bool = True) -> list[int]:
        """The tokens of a prompt; special: with those that the tokenizer puts around every text.
        Raises InputError, CapacityError.
        """
        if isinstance(prompt, str):
            self._check_bytes([prompt])
            prompt = self._text().encode(prompt, special=special)
        if not len(prompt):
            raise InputError("the prompt is empty", field="prompt")
        if len(prompt) >= self.capacity:
            # There has to be a place for the answer's first token.
            raise CapacityError(len(prompt) + 1, self.capacity)
        self._check_tokens(prompt, "prompt")
        return list(prompt)

    def close(self) -> None:
        """Cancels every answer and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        with self._compiling:
            if self._grammars is not None:
                self._grammars.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _text(self) -> Text:
        if self.text is None:
            reason = self.model.manifest.left_out.get(TOKENIZER)
            raise InputError(
                f"the engine has no tokenizer{f': {reason}' if reason else ''}",
                hint="name the folder that holds it",
            )
        return self.text

    def spell(self, token: int) -> bytes:
        """The bytes of a token; without a tokenizer, its number in words."""
        return f"token_id:{token}".encode() if self.text is None else self.text.spell(token)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones; raises InputError."""
        self._check_tokens(tokens, "tokens")
        return self._text().decode(tokens)

    def _check_sampling(self, sampling: Sampling) -> None:
        """Raise InputError for what this model or tokenizer cannot follow."""
        if sampling.stop:
            self._text()
        self._check_tokens(sampling.stop_tokens, "stop_token_ids")
        self._check_tokens(list(sampling.logit_bias), "logit_bias")
        if sampling.prompt_logprobs and self._last_logits_alone:
            raise InputError(
                "the library computes only the last token's logits: a prompt has no others",
                hint="compile it with logits=all",
                field="logprobs",
            )

    def _check_tokens(self, tokens: Sequence[int], field: str) -> None:
        for position, token in enumerate(tokens):
            if not 0 <= token < self._vocabulary:
                raise InputError(
                    f"token {position} of {field} is none of the model's",
                    hint=f"they are 0 to {self._vocabulary - 1}",
                    field=field,
                )

    def _check_bytes(self, texts: Sequence[str]) -> None:
        """Raise CapacityError for texts of which the bytes alone say that they do not fit: before
        they are tokenized, which takes a hundred times their memory.
        """
        longest = self._text().longest_token
        if sum(map(len, texts)) * _MOST_BYTES <= self.capacity * longest:
            return
        size = sum(len(text.encode(errors="replace")) for text in texts)
        if size > self.capacity * longest:
            raise CapacityError(math.ceil(size / longest), self.capacity)

    def _matcher(self, sampling: Sampling) -> Matcher | None:
        if sampling.grammar is None:
            return None
        with self._compiling:
            if self._grammars is None:
                self._grammars = Grammars(self._text())
        return self._grammars.matcher(sampling.grammar)

    def _retry_after(self) -> int:
        """Seconds after which there may be room, by how long answers took lately."""
        turns = (len(self._waiting) + self._batch.count) / self._sequences
        return math.ceil(min(max(turns * self._batch.seconds, 1), _LONGEST_WAIT))

    def _serve(self) -> None:
        while self._admit():
            try:
                self._batch.drop()
                self._batch.read()
                self._batch.step()
            except BaseException as error:
                self._batch.fail(failure_of(error))
        for generation in (*self._batch, *self._waiting):
            if generation.finish is None:
                generation.end(Finish.CANCELLED)

    def _admit(self) -> bool:
        """Waits for work and lets a request in where there is a place; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._batch.count)
            left = self._waiting.remove_cancelled()
            for generation in self._batch.displaced:
                self._waiting.add(generation)
            self._batch.displaced.clear()
            following = self._waiting.next()
            if following is not None and self._room(following):
                self._waiting.take()
                self._batch.enter(following)
        for generation in left:
            generation.end(Finish.CANCELLED)
        return not self._closed

    def _room(self, following: Generation) -> bool:
        """True if a prompt may enter, in the place of a less important answer if need be."""
        if not self._batch.free:
            interrupted = self._batch.preempt(following.priority)
            if interrupted is not None:
                self._waiting.add(interrupted)
        return self._batch.free


def _adapters_of(model: Model, count: int) -> LoadedAdapters | None:
    """Slots for adapters, at most as many as the bundle admits; None where it takes none."""
    described = model.manifest.adapters
    if described is None:
        return None
    if count < 1:
        raise InputError(f"{count} adapters may be loaded: it must be at least 1")
    stack = next(spec for spec in model.inputs if spec.name == described.modules[0].down)
    symbol = stack.shape[0].symbol
    most = next((dim.highest for dim in model.dims if dim.name == symbol), None)
    return LoadedAdapters(model.adapters(count if most is None else min(count, most)))


def _renamed(
    on_token: Callable[[Piece], None] | None, former: Callable[[Piece], None] | None
) -> Callable[[Piece], None] | None:
    if former is not None:
        warnings.warn("heard is on_token now", DeprecationWarning, stacklevel=3)
    return on_token or former
