"""`python -m benchmarks.llm.genai FOLDER CAPACITY`: answers a line on its input with a line on its
output, by onnxruntime-genai; see `benchmarks.llm.engines`. `write MODEL FOLDER THREADS CAPACITY`
makes the folder.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llm.requests import PIECE, format_times, list_values, serve, times, tokens_at

WEIGHT_BITS = 4
"""The accuracy_level at which what blocks multiply is rounded to 8 bits, as llama.cpp does it."""


def write(model: Path, folder: Path, threads: int, capacity: int) -> None:
    """Write the decoder of a GGUF file as the model that relaxd's import makes of it, once, and
    the settings of onnxruntime-genai.
    """
    from compiler.ir.files.model_file import LoadedModel, open_model
    from compiler.ir.onnx.model.last_logits import keep_last_logits
    from compiler.verify.reference.model_files import write_model

    if not (folder / "model.onnx").exists():
        folder.mkdir(parents=True, exist_ok=True)
        loaded = open_model(model)
        assert isinstance(loaded, LoadedModel)
        keep_last_logits(loaded.proto)
        for node in loaded.proto.graph.node:
            if node.op_type == "MatMulNBits":
                node.attribute.add(name="accuracy_level", type=2, i=WEIGHT_BITS)
        write_model(loaded.proto, folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(_settings(folder, threads, capacity)))


def _settings(folder: Path, threads: int, capacity: int) -> dict[str, Any]:
    import onnx

    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    caches = [one for one in graph.input if one.name.startswith("past_key_values")]
    _, groups, _, size = (dim.dim_value for dim in caches[0].type.tensor_type.shape.dim)
    attention = next(node for node in graph.node if node.op_type == "GroupQueryAttention")
    heads = next(one.i for one in attention.attribute if one.name == "num_heads")
    decoder = {
        "session_options": {"intra_op_num_threads": threads, "provider_options": []},
        "filename": "model.onnx",
        "head_size": size,
        "hidden_size": heads * size,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": heads,
        "num_hidden_layers": len(caches) // 2,
        "num_key_value_heads": groups,
    }
    (words,) = (
        one.type.tensor_type.shape.dim[2].dim_value for one in graph.output if one.name == "logits"
    )
    return {
        "model": {
            "type": "llama",
            "vocab_size": words,
            "context_length": capacity,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "decoder": decoder,
        },
        "search": {"max_length": capacity, "past_present_share_buffer": True},
    }


class Runner:
    """A loaded folder, and a generator for as many sequences as were last asked for."""

    def __init__(self, folder: Path, capacity: int) -> None:
        import onnxruntime_genai

        self.library, self.capacity = onnxruntime_genai, capacity
        self.model = onnxruntime_genai.Model(str(folder))
        self.generator: Any = None
        self.state = (0, 0)

    def begin(self, entries: int, tokens: int) -> None:
        """Sequences that hold so many tokens."""
        self.generator = None
        params = self.library.GeneratorParams(self.model)
        params.set_search_options(max_length=self.capacity, batch_size=entries)
        self.generator = self.library.Generator(self.model, params)
        text = tokens_at(0, tokens).astype(np.int32)
        for first in range(0, tokens, PIECE):
            self.generator.append_tokens(np.tile(text[first : first + PIECE], (entries, 1)))
        self.state = (entries, tokens)

    def prefill(self, tokens: int) -> str:
        """Time of a prompt."""
        started = times()
        self.begin(1, tokens)
        return format_times(started, 1)

    def logits(self, tokens: int) -> str:
        """The first logits behind a prompt."""
        self.begin(1, tokens)
        return list_values(np.asarray(self.generator.get_output("logits"))[0, -1, :256])

    def decode(self, past: int, entries: int, steps: int) -> str:
        """Time of a step behind `past` tokens."""
        if self.state != (entries, past):
            self.begin(entries, past)
        text = tokens_at(past, steps).astype(np.int32)
        started = times()
        for token in text:
            self.generator.append_tokens(np.full((entries, 1), token))
        answer = format_times(started, steps)
        self.generator.rewind_to(past)
        return answer


def main() -> int:
    """Answer until the input ends, or make a folder."""
    if sys.argv[1] == "write":
        _, _, model, created, threads, room = sys.argv
        write(Path(model), Path(created), int(threads), int(room))
        return 0
    folder, capacity = sys.argv[1:]
    return serve(Runner(Path(folder), int(capacity)))


if __name__ == "__main__":
    sys.exit(main())
