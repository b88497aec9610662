"""Forms of calls: what a grammar admits, a reader reads, in any pieces."""

from typing import Any

import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer, decoders, models

from relaxd.llm.grammar_process import compile_grammar
from relaxd.llm.reading import Call, Reader, merge
from relaxd.llm.tools import FORMS, CallForm, Choice, Tool, Tools, find_form, make_grammar

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = Tools((Tool("get_weather", CITY, {}), Tool("b.c", {"type": "object"}, {})), Choice.REQUIRED)
ARGUMENTS = '{"city": "Paris {[\\"}x", "days": 3}'
BY_NAME = {form.name: form for form in FORMS}


def call(form: CallForm, name: str, arguments: str) -> str:
    return form.head + name + form.middle + arguments + form.tail


def answer(form: CallForm, *calls: tuple[str, str]) -> str:
    return form.begin + form.between.join(call(form, *each) for each in calls) + form.end


def read(text: str, size: int, form: CallForm | None = None, **how: bool) -> Any:
    """The content, the thought and the names and arguments of calls, by pieces of a size."""
    reader = Reader(form, **how)
    parts = [reader.feed(text[i : i + size]) for i in range(0, len(text), size)]
    content, thought, calls = merge([*parts, reader.feed("", last=True)])
    assert all(each.id and len(each.id) == 9 for each in calls)
    assert reader.called == bool(calls)
    return content, thought, [(each.name, each.arguments) for each in calls]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = [*map(chr, range(32, 127)), "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {word: index for index, word in enumerate(words)}
    created = Tokenizer(models.BPE(vocabulary, [], unk_token="!", byte_fallback=True))
    created.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    created.add_special_tokens(["<end>", "[TOOL_CALLS]", "[ARGS]", "</think>"])
    created.add_tokens(["<tool_call>", "</tool_call>"])
    return created


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_grammar_admits_its_form_and_nothing_else(
    tokenizer: Tokenizer, form: CallForm, thinking: bool
) -> None:
    added = {word.content: id_ for id_, word in tokenizer.get_added_tokens_decoder().items()}
    compiled = LLTokenizer(tokenizer.to_str(), eos_token=[added["<end>"]])

    def admits(tools: Tools, *calls: tuple[str, str]) -> bool:
        grammar = make_grammar(tools, form, added, thinking=thinking)
        matcher = compile_grammar(compiled, grammar.syntax.value, grammar.definition)
        assert not matcher.is_error(), matcher.get_error()
        text = ("a thought\n</think>\n\n" if thinking else "") + answer(form, *calls)
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        return bool(matcher.consume_tokens(tokens)) and matcher.is_accepting()

    assert admits(TOOLS, ("get_weather", ARGUMENTS))
    assert admits(TOOLS, ("get_weather", ARGUMENTS), ("b.c", "{}"))
    assert not admits(TOOLS, ("get_wind", ARGUMENTS))
    assert not admits(TOOLS, ("get_weather", "{}"))
    single = Tools(TOOLS.offered, Choice.REQUIRED, parallel=False, named="b.c")
    assert admits(single, ("b.c", '{"x": [1]}'))
    assert not admits(single, ("get_weather", ARGUMENTS))
    assert not admits(single, ("b.c", "{}"), ("b.c", "{}"))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_calls_are_read_in_any_pieces(form: CallForm, size: int) -> None:
    calls = [("get_weather", ARGUMENTS), ("b.c", "{}"), ("b.c", '{"a": {"b": []}}')]
    text = answer(form, *calls)
    assert read(text, size, form) == ("", "", calls)
    assert read(text, size, form, single=True) == ("", "", calls[:1])
    thought = f"<think>\nwhich one?\n\n</think>\n\n{text}"
    assert read(thought, size, form, thinks=True) == ("", "which one?", calls)
    if form.trigger:
        assert read(f"I look.\n{text}", size, form) == ("I look.\n", "", calls)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("text", ['Hello { "name" }', "", "a < b [x] <tool", "  ", "\n1"])
def test_text_without_calls_is_content(form: CallForm, text: str, size: int) -> None:
    assert read(text, size, form) == (text, "", [])


@pytest.mark.parametrize("size", [1, 1000])
def test_calls_that_are_written_otherwise(size: int) -> None:
    hermes, llama, mistral = BY_NAME["hermes"], BY_NAME["llama3"], BY_NAME["mistral"]
    late = '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'
    assert read(late, size, hermes) == ("", "", [("f", '{"a": 1}')])
    several = '<tool_call>[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"b": 2}}]'
    calls = [("f", "{}"), ("g", '{"b": 2}')]
    assert read(several + "</tool_call>", size, hermes) == ("", "", calls)
    tagged = '<|python_tag|>{"name": "f", "parameters": {}}'
    assert read(tagged, size, llama) == ("", "", [("f", "{}")])
    spaced = '[TOOL_CALLS] [\n{ "name" : "f" , "arguments" : {"a":\n1} } ]'
    assert read(spaced, size, mistral) == ("", "", [("f", '{"a":\n1}')])
    numbered = '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}'
    assert read(numbered, size, BY_NAME["mistral-args"]) == ("", "", [("f", '{"a": 1}')])


@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_no_call_is_not_lost(size: int) -> None:
    hermes, llama = BY_NAME["hermes"], BY_NAME["llama3"]
    deep = f"<tool_call>{'[' * 2000}</tool_call>"
    for text in (deep, "<tool_call>{nonsense}</tool_call>", '<tool_call>{"a": 1}</tool_call> b'):
        assert read(text, size, hermes) == (text, "", [])
    assert read('{"a": 1}', size, llama) == ('{"a": 1}', "", [])
    # As where max_tokens ends it: the arguments so far.
    cut = '<tool_call>{"name": "f", "arguments": {"a": "b'
    assert read(cut, size, hermes) == ("", "", [("f", '{"a": "b')])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_thoughts(size: int) -> None:
    assert read("<think>\na\n\nb\n</think>\n\nc\n", size, thinks=True) == ("c\n", "a\n\nb", [])
    assert read("a</think>b", size, thinks=True, thinking=True) == ("b", "a", [])
    assert read("\n<think>a", size, thinks=True) == ("", "a", [])
    assert read("a <think>b</think>", size, thinks=True) == ("a <think>b</think>", "", [])
    assert read(" <thin", size, thinks=True) == (" <thin", "", [])
    assert read("<think></think>c", size, thinks=True) == ("c", "", [])
    assert read("<think>a</think>b", size) == ("<think>a</think>b", "", [])


def test_a_template_says_its_form() -> None:
    for form in FORMS:
        result = find_form("{{ tools }}" + form.mark)
        assert result is form
    assert find_form("{{ tools }}") is None
    assert find_form("<tool_call><function=f>") is None


def test_parts_of_a_call() -> None:
    reader = Reader(BY_NAME["hermes"])
    text = '<tool_call>{"name": "f", "arguments": {"a'
    calls = [each for letter in text for each in reader.feed(letter).calls]
    assert (calls[0].name, calls[0].arguments) == ("f", "")
    assert calls[1:] == [Call(0, letter) for letter in '{"a']
