"""Begins the answer to a conversation: its prompt, the grammar of required calls, its reader."""

from dataclasses import dataclass, replace

from relaxd.llm.engine import Engine
from relaxd.llm.reading import Reader
from relaxd.llm.sampling import Sampling
from relaxd.llm.tools import CallForm, make_grammar
from relaxd.llm.wire.requests import Asked


@dataclass(frozen=True)
class Conversation:
    """A prompt's tokens, how answers to it are sampled, and the special tokens that are text."""

    tokens: list[int]
    sampling: Sampling
    shown: frozenset[int] = frozenset()
    form: CallForm | None = None
    single: bool = False
    thinks: bool = False
    thinking: bool = False

    def make_reader(self) -> Reader:
        """A reader of one answer."""
        return Reader(self.form, single=self.single, thinks=self.thinks, thinking=self.thinking)


def begin_conversation(engine: Engine, want: Asked) -> Conversation:
    """Make the prompt of a conversation; raises InputError, CapacityError."""
    tools = want.tools
    form = engine.call_form if tools.callable else None
    documents = [tool.document for tool in tools.offered] if form else []
    tokens = engine.encode_chat(want.messages or [], documents, want.variables)
    text = engine.text
    assert text is not None  # it made the tokens
    thinking = text.is_thinking(tokens)
    sampling = want.sampling
    if form is not None and tools.required:
        grammar = make_grammar(tools, form, text.added, thinking=thinking)
        sampling = replace(sampling, grammar=grammar)
    # A grammar of the request's own has no thoughts.
    thinks = text.thinks and want.sampling.grammar is None
    return Conversation(
        tokens,
        sampling,
        text.marks if form or thinks else frozenset(),
        form,
        not tools.parallel,
        thinks,
        thinking and thinks,
    )
