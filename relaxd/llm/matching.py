"""Which tokens may come next in an answer that follows a grammar, by llguidance."""

import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from relaxd.errors import GrammarError, OverloadError
from relaxd.llm.grammar import Grammar
from relaxd.llm.grammar_process import GrammarProcess, Limits, compile_grammar
from relaxd.llm.text import Text

_MOST_CACHED = 32
_MOST_BYTES = 256 << 20
"""Of all grammars that are kept, by what compiling them took."""
_LARGEST_CACHED = 32 << 20
"""A larger one would push out those of others."""
_AT_ONCE = 4
_LONGEST_MESSAGE = 500
_NICE = 10
_LIMITS = Limits()


class Grammars:
    """Grammars over the tokens of one tokenizer; may be used from any thread. A grammar is compiled
    in a process of its own first, within limits.
    """

    def __init__(self, text: Text, limits: Limits = _LIMITS) -> None:
        ends = sorted(text.ends)
        try:
            self._tokenizer = LLTokenizer(text.serialized, eos_token=ends or None)
        except ValueError as error:
            raise GrammarError(
                f"grammars cannot be matched with this tokenizer: {error}",
                hint="it must decode tokens by ByteLevel or ByteFallback",
            ) from error
        self._limits = limits
        self._process = GrammarProcess(text.serialized, ends, limits)
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        # One thread, which is behind those that compute tokens.
        self._compiler = ThreadPoolExecutor(1, "relaxd-grammar", _lower_priority)
        self._cache: OrderedDict[Grammar, tuple[LLMatcher, int]] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> "Matcher":
        """Follows a grammar from its start; raises GrammarError for one that cannot be read or
        takes too much, OverloadError where too many are compiled.
        """
        with self._lock:
            cached = self._cache.get(grammar)
        # Without the lock: a large schema takes a second.
        matcher, size = self._compile(grammar) if cached is None else cached
        with self._lock:
            if size <= _LARGEST_CACHED:
                self._cache[grammar] = matcher, size
                self._cache.move_to_end(grammar)
            while (
                len(self._cache) > _MOST_CACHED
                or sum(size for _, size in self._cache.values()) > _MOST_BYTES
            ):
                self._cache.popitem(last=False)
            return Matcher(matcher.deep_copy())

    def __contains__(self, grammar: Grammar) -> bool:
        with self._lock:
            return grammar in self._cache

    def close(self) -> None:
        """End the process and the thread that compile."""
        self._process.close()
        self._compiler.shutdown(cancel_futures=True)

    def _compile(self, grammar: Grammar) -> tuple[LLMatcher, int]:
        """A matcher, and the bytes that compiling it took."""
        if not self._places.acquire(timeout=self._limits.wall_s):
            raise OverloadError(
                f"{_AT_ONCE} grammars are being compiled", hint="try again later", retry_after=1
            )
        try:
            size = self._try(grammar)
            return self._compiler.submit(self._compile_here, grammar).result(), size
        finally:
            self._places.release()

    def _try(self, grammar: Grammar) -> int:
        result = self._process.try_grammar(grammar.syntax.value, grammar.definition)
        if result is None:
            limits = self._limits
            raise _refused(
                grammar,
                f"compiling it takes more than {limits.cpu_s} s or {limits.memory_bytes >> 20} MiB,"
                " or its rules are nested too deeply",
                hint="make it smaller",
            )
        if "busy" in result:
            raise OverloadError(
                f"no process to compile the grammar: {result['busy']}", retry_after=1
            )
        if "error" in result:
            raise _refused(grammar, result["error"])
        return int(result["bytes"])

    def _compile_here(self, grammar: Grammar) -> LLMatcher:
        matcher = compile_grammar(self._tokenizer, grammar.syntax.value, grammar.definition)
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return matcher


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _refused(grammar: Grammar, why: str, hint: str | None = None) -> GrammarError:
    why = why.strip()
    if len(why) > _LONGEST_MESSAGE:
        # It quotes the grammar.
        why = f"{why[:_LONGEST_MESSAGE]}..."
    return GrammarError(
        f"the {grammar.syntax.value.replace('_', ' ')} cannot be followed: {why}", hint=hint
    )


class Matcher:
    """Where one answer is in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def mask(self, logits: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """Scores [words] of which those of tokens that may not come next are -inf."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = np.zeros(len(logits), bool)
        known = np.unpackbits(bits, bitorder="little")[: len(logits)]
        allowed[: len(known)] = known
        if not allowed.any():
            raise GrammarError("the grammar admits no token of the model here")
        return np.where(allowed, logits, np.float32(-np.inf))

    def take(self, token: int) -> bool:
        """Goes on by a token; returns whether nothing may follow."""
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    # A failure of these two is one of the next mask too.

    def forced_tokens(self) -> list[int]:
        """Tokens of the text that has to come next."""
        return list(self._matcher.compute_ff_tokens())

    def count_admitted(self, tokens: list[int]) -> int:
        """How many of the tokens may come next."""
        return int(self._matcher.validate_tokens(tokens)) if tokens else 0

    def copy(self) -> "Matcher":
        """Another one at the same place."""
        return Matcher(self._matcher.deep_copy())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(
                f"the grammar cannot be followed any further: {self._matcher.get_error()}",
                hint="make it simpler",
            )
