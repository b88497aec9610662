"""Tokens that a grammar admits, and grammars that cannot be read."""

import json
import re
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from relaxd.errors import GrammarError, InputError, OverloadError
from relaxd.llm import Sampling
from relaxd.llm.generation import Finish, Generation
from relaxd.llm.grammar import MAX_DEFINITION, Grammar
from relaxd.llm.grammar_process import Limits
from relaxd.llm.matching import Grammars
from relaxd.llm.text import Text
from tests.relaxd.llm.models import END, LETTERS, WORDS, tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LARK = 'start: "a" part "a"\npart: "b" | "(" part ")" | "[" part "]"'


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return Text(tokenizer(tmp_path_factory.mktemp("matching")))


def count_admitted(grammars: Grammars, grammar: Grammar, written: str) -> str:
    """The characters that may follow a text, `~` for its end."""
    matcher = grammars.matcher(grammar)
    for letter in written:
        matcher.take(LETTERS.index(letter))
    open_ones = np.isfinite(matcher.mask(np.zeros(WORDS, np.float32)))
    return "".join((LETTERS + "~")[token] for token in np.flatnonzero(open_ones))


@pytest.mark.parametrize(
    ("grammar", "written", "following"),
    [
        (Grammar.regex("ab*c"), "", "a"),
        (Grammar.regex("ab*c"), "ab", "bc"),
        (Grammar.regex("ab*"), "ab", "b~"),
        (Grammar.schema(SCHEMA), "", "{"),
        (Grammar.schema(SCHEMA), '{"', "a"),
        (Grammar.schema(SCHEMA), '{"a": 7', "0123456789 ,"),
        (Grammar.json_object(), '{"a": [1', "0123456789eE] .,-"),
        (Grammar.lark(LARK), "a[", "b["),
        (Grammar.lark(LARK), "a[[b]", "]"),
    ],
    ids=str,
)
def test_what_may_come_next(text: Text, grammar: Grammar, written: str, following: str) -> None:
    result = count_admitted(Grammars(text), grammar, written)
    if grammar == Grammar.json_object():
        assert {*"0123456789],"} <= {*result} <= {*following}
    else:
        assert {*result} == {*following}


def test_random_answers_match(text: Text) -> None:
    grammars, draw = Grammars(text), np.random.default_rng(2)
    for seed in range(40):
        grammar = (Grammar.schema(SCHEMA), Grammar.regex("[a-f]{2,9}(0|1)"))[seed % 2]
        created = Generation(
            [1],
            Sampling(temperature=2, seed=seed, max_tokens=120),
            text,
            text.ends,
            matcher=grammars.matcher(grammar),
        )
        while created.finish is None:
            created.take(draw.standard_normal(WORDS).astype(np.float32), 99)
        assert created.finish is Finish.STOP
        if seed % 2:
            assert re.fullmatch("[a-f]{2,9}[01]", created.text())
            # Nothing may follow, so that the answer ends without the token that ends texts.
            assert created.tokens[-1] != END
        else:
            result = json.loads(created.text())
            assert sorted(result) == ["a", "b"]
            assert 0 <= result["a"] <= 99


def test_tokens_that_the_tokenizer_does_not_know_are_left_out(text: Text) -> None:
    matcher = Grammars(text).matcher(Grammar.regex("[a-z]*"))
    assert not np.isfinite(matcher.mask(np.zeros(WORDS + 9, np.float32))[WORDS:]).any()


def test_forced_text(text: Text) -> None:
    matcher = Grammars(text).matcher(Grammar.regex("a(bcd|bce)"))
    assert "".join(LETTERS[token] for token in matcher.forced_tokens()) == "abc"


def test_answers_of_one_grammar_do_not_know_each_other(text: Text) -> None:
    grammars = Grammars(text)
    one, other = (grammars.matcher(Grammar.regex("ab")) for _ in range(2))
    one.take(LETTERS.index("a"))
    assert other.take(LETTERS.index("a")) is False
    assert one.take(LETTERS.index("b")) is True


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (Grammar.schema({"type": "objekt"}), "json schema cannot be followed: Invalid type"),
        (Grammar.schema({"$ref": "#/$defs/x"}), "does not exist"),
        (Grammar.schema({"type": "string", "pattern": "("}), "unclosed group"),
        (Grammar.regex("("), "regex cannot be followed"),
        (Grammar.lark("start: x"), 'unknown name: "x"'),
        (Grammar.regex("(?=a)b"), "look-around"),
    ],
    ids=str,
)
def test_grammars_that_cannot_be_read(text: Text, grammar: Grammar, why: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(why)):
        Grammars(text).matcher(grammar)


def test_a_tokenizer_that_is_not_of_bytes(tmp_path: Path) -> None:
    path = tokenizer(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "decoder": {"type": "Fuse"}}))
    with pytest.raises(GrammarError, match="ByteLevel or ByteFallback"):
        Grammars(Text(tmp_path))


def test_a_grammar_of_any_size() -> None:
    with pytest.raises(InputError, match="256 KiB"):
        Grammar.regex("a" * (MAX_DEFINITION + 1))


CHAINED = "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(4000)) + 'r4000: "a"'
HOSTILE = {
    "chained rules": Grammar.lark(CHAINED),
    "optional letters": Grammar.regex("a?" * 117_000),
    "words": Grammar.regex(r"\w?" * 60_000),
    "alternatives in a schema": Grammar.schema(
        {"type": "string", "pattern": "^(" + "a?" * 100_000 + ")$"}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_grammars_that_take_too_much_are_refused(
    text: Text, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Compiled here, the first ends the process, and the others take gigabytes."""
    grammars = Grammars(text, Limits(cpu_s=1, memory_bytes=128 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GrammarError, match="more than 1 s or 128 MiB"):
        grammars.matcher(HOSTILE[name])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10
    assert capfd.readouterr().err == ""
    assert count_admitted(grammars, Grammar.regex("ab"), "a") == "b"
    grammars.close()


def test_a_grammar_is_tried_beside_one_that_takes_long(text: Text) -> None:
    grammars = Grammars(text, Limits(cpu_s=2, memory_bytes=1 << 30))
    grammars.matcher(Grammar.regex("b"))
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(grammars.matcher, HOSTILE["optional letters"])
        assert grammars.matcher(Grammar.regex("a"))
        assert not slow.done()
        assert isinstance(slow.exception(), GrammarError)
    grammars.close()


def test_too_many_grammars_at_once(text: Text) -> None:
    grammars = Grammars(text, Limits(wall_s=0.01))
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(grammars._places)
        with pytest.raises(OverloadError, match="4 grammars are being compiled"):
            grammars.matcher(Grammar.regex("a"))


def test_the_process_that_tries_grammars_starts_again(text: Text) -> None:
    grammars = Grammars(text)
    for letter in "abc":
        grammars.matcher(Grammar.regex(letter))
        process = grammars._process._end.peek()[2][0]
        process.kill()
        process.wait()
    grammars.close()
    assert process.returncode is not None


def test_grammars_that_are_kept_have_a_size(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Grammars(text)
    monkeypatch.setattr(grammars, "_try", lambda grammar: 30 << 20)
    for letter in "abcdefghij":
        grammars.matcher(Grammar.regex(letter))
    assert [grammar.definition for grammar in grammars._cache] == [*"cdefghij"]
    grammars.matcher(Grammar.regex("c"))
    monkeypatch.setattr(grammars, "_try", lambda grammar: 33 << 20)
    grammars.matcher(Grammar.regex("k"))
    assert [grammar.definition for grammar in grammars._cache] == [*"defghijc"]
    assert Grammar.regex("c") in grammars
    assert Grammar.regex("k") not in grammars
    grammars.close()


def test_a_message_quotes_a_part_of_a_grammar(text: Text) -> None:
    with pytest.raises(GrammarError) as caught:
        Grammars(text).matcher(Grammar.regex("a" * 100_000 + "("))
    assert len(str(caught.value)) < 600
