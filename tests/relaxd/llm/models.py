"""A bundle with state and a tokenizer of single characters, for tests."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models

import compiler
from relaxd.contract.options import CompileOptions, Flavour, StateForm
from tests.support.models.decoders import FILLED_DIMS, GROWN_DIMS, WORDS, Original, fill, grown

END = WORDS - 1
LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789{}[]" .,:;|!-ABCDEHIKLNRSTY'
QUICK = CompileOptions(verify=False, profile=False, state=StateForm.LIFTED)
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
KINDS = {"filled": (fill, FILLED_DIMS), "grown": (grown, GROWN_DIMS)}


def build(folder: Path, kind: str, flavour: Flavour | None = None) -> Path:
    """A bundle of the kind, of this machine's own backend unless another is given."""
    model, dims = KINDS[kind]
    options = replace(QUICK, flavour=flavour)
    compiler.compile_model(model(), output=folder / kind, dims=dims, options=options)
    return folder / kind


def tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer, its template and the token at which texts end."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {letter: index for index, letter in enumerate(LETTERS)} | {"<end>": END}
    created = Tokenizer(models.BPE(vocabulary, [], unk_token="!"))
    created.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    created.add_special_tokens(["<end>"])
    created.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<end>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def greedy(kind: str, prompt: list[int], count: int) -> list[int]:
    """Generate with ONNX Runtime, the most probable token each time."""
    original = Original(KINDS[kind][0]())
    results = [int(np.argmax(original.step(prompt)[-1]))]
    while len(results) < count and results[-1] != END:
        results.append(int(np.argmax(original.step(results[-1:])[-1])))
    return results
