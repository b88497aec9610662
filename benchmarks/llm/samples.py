"""Samples that SmolLM2's weights are calibrated by: prose of Python's own help texts, and what the
float32 model answers to prompts that are none of those that are counted.
"""

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from onnx import helper
from tokenizers import Tokenizer

from compiler.ir.files.model_file import LoadedModel, open_model
from relaxd.llm import Engine, Sampling

PROMPTS = (
    "Why do leaves turn red in autumn?",
    "Write a short letter to a friend about a train journey.",
    "Name four rivers of Europe.",
    "What is a prime number?",
    "Explain how a bicycle stays upright.",
    "Translate 'thank you very much' into French.",
    "Write a function in Python that reverses a string.",
    "What should I pack for a week at a lake?",
    "Summarize what photosynthesis is.",
    "Tell me a story about a lighthouse keeper.",
    "How is cheese made?",
    "What is 9 times 12?",
    "List three kinds of clouds.",
    "Who painted the Mona Lisa?",
    "Give me advice for learning the piano.",
    "Was isst man zum Frühstück?",
)
_ROWS, _LENGTH, _ANSWER = 8, 512, 128


def write(model: Path, bundle: Path, path: Path) -> None:
    """An .npz of the inputs of one step of the model, as its import makes them; bundle: the same in
    float32.
    """
    loaded = open_model(model)
    assert isinstance(loaded, LoadedModel)
    half = _ROWS // 2 * _LENGTH
    tokens = [*_prose(loaded, half), *_answers(bundle)]
    rows = np.resize(np.array(tokens), (_ROWS, _LENGTH))
    sizes = {
        "batch_size": _ROWS,
        "sequence_length": _LENGTH,
        "past_sequence_length": 0,
        "total_sequence_length": _LENGTH,
    }
    inputs: dict[str, Any] = {}
    for entry in loaded.proto.graph.input:
        kind = entry.type.tensor_type
        shape = [sizes.get(axis.dim_param, axis.dim_value) for axis in kind.shape.dim]
        inputs[entry.name] = np.ones(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    inputs["input_ids"][:] = rows
    np.savez(path, **inputs)


def _prose(model: LoadedModel, count: int) -> list[int]:
    """That many tokens, of the beginnings of long texts."""
    tokenizer = Tokenizer.from_str(json.dumps(model.text.documents["tokenizer.json"]))
    long = [text for _, text in sorted(topics.items()) if len(text) > 3000]
    result: list[int] = []
    for text in long:
        result += tokenizer.encode(text[:1200], add_special_tokens=False).ids
    return result[:count]


def _answers(bundle: Path) -> list[int]:
    """Conversations, one after the other."""
    with Engine.open(bundle, threads=1) as engine:
        created = [
            engine.chat(
                [{"role": "user", "content": prompt}],
                Sampling(max_tokens=_ANSWER, temperature=0.7, seed=position),
            )
            for position, prompt in enumerate(PROMPTS)
        ]
        for answer in created:
            answer.text()
        return [token for answer in created for token in (*answer.prompt, *answer.tokens)]
