"""Tokenizers and templates of conversations."""

import json
import threading
from pathlib import Path

import pytest

from relaxd.errors import InputError
from relaxd.llm.text import Text
from tests.relaxd.llm.models import END, tokenizer

TALK = [{"role": "user", "content": "Hi there"}]


def with_template(folder: Path, template: str) -> Text:
    tokenizer(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return Text(folder)


def test_texts_and_tokens(tmp_path: Path) -> None:
    text = Text(tokenizer(tmp_path))
    assert text.decode(text.encode("Some words.")) == "Some words."
    assert text.ends == {END}
    stream = text.stream()
    assert "".join(stream.step(token) for token in text.encode("one, two")) == "one, two"


def test_a_long_text_lets_other_threads_run(tmp_path: Path) -> None:
    text, ended, turns = Text(tokenizer(tmp_path)), threading.Event(), 0

    def encode() -> None:
        assert len(text.encode("hello there " * 50_000)) == 600_000
        ended.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not ended.wait(0.005):
        turns += 1
    thread.join()
    # Of a thread that was kept waiting, the first wait ends with the text.
    assert turns > 3


def test_ends_of_every_file(tmp_path: Path) -> None:
    tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    (tmp_path / "genai_config.json").write_text('{"model": {"eos_token_id": 7}}')
    assert Text(tmp_path).ends == {5, 6, 7, END}


def test_a_conversation(tmp_path: Path) -> None:
    text = Text(tokenizer(tmp_path))
    assert text.decode(text.chat(TALK)) == "user: Hi there|assistant: "
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert Text(tmp_path).decode(Text(tmp_path).chat(TALK)) == "Hi there"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{% if %}",
    ],
)
def test_templates_that_do_not_do(tmp_path: Path, template: str) -> None:
    text = with_template(tmp_path, template)
    with pytest.raises(InputError, match="template"):
        text.chat(TALK)


def test_folders_without_what_it_takes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        Text(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot read the tokenizer"):
        Text(tmp_path)
    tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        Text(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(InputError, match="has no template"):
        Text(tmp_path).chat(TALK)
