"""Which tokens may come next in an answer that follows a grammar, by llguidance."""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from relaxd.errors import GrammarError
from relaxd.llm.grammar import Grammar, Syntax
from relaxd.llm.text import Text

_MOST_CACHED = 32
_SPACE = r"(\n {0,32}| )?"
"""Between the parts of a JSON text. Models that may write any space write nothing else for ever."""


class Grammars:
    """Grammars over the tokens of one tokenizer; may be used from any thread."""

    def __init__(self, text: Text) -> None:
        try:
            self._tokenizer = LLTokenizer(text.serialized, eos_token=sorted(text.ends) or None)
        except ValueError as error:
            raise GrammarError(
                f"grammars cannot be matched with this tokenizer: {error}",
                hint="it must decode tokens by ByteLevel or ByteFallback",
            ) from error
        self._cache: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> "Matcher":
        """Follows a grammar from its start; raises GrammarError for one that cannot be read."""
        with self._lock:
            cached = self._cache.pop(grammar, None)
        if cached is None:
            # Without the lock: a large schema takes a second.
            cached = self._compiled(grammar)
        with self._lock:
            self._cache[grammar] = cached
            while len(self._cache) > _MOST_CACHED:
                self._cache.popitem(last=False)
            return Matcher(cached.deep_copy())

    def _compiled(self, grammar: Grammar) -> LLMatcher:
        try:
            matcher = LLMatcher(self._tokenizer, _source(grammar), log_level=0)
        except ValueError as error:
            raise _refused(grammar, str(error)) from error
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return matcher


def _source(grammar: Grammar) -> str:
    match grammar.syntax:
        case Syntax.JSON_SCHEMA:
            return LLMatcher.grammar_from_json_schema(
                grammar.definition, overrides={"whitespace_pattern": _SPACE}
            )
        case Syntax.REGEX:
            return LLMatcher.grammar_from_regex(grammar.definition)
        case Syntax.LARK:
            return LLMatcher.grammar_from_lark(grammar.definition)


def _refused(grammar: Grammar, why: str) -> GrammarError:
    return GrammarError(
        f"the {grammar.syntax.value.replace('_', ' ')} cannot be followed: {why.strip()}"
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
