"""`python -m benchmarks.llm.paged MODEL TOKENIZER THREADS CAPACITY`: answers a line on its input
with a line on its output, by OpenVINO GenAI's continuous batching over pages, which reads the GGUF
file itself; see `benchmarks.llm.engines`. TOKENIZER is a file that has one, of which nothing is
used: OpenVINO GenAI opens no model without.
"""

import sys
from itertools import count
from typing import Any

from benchmarks.llm.requests import PIECE, format_times, serve, times, tokens_at

_MOST = 8
"""Sequences at once."""


class Runner:
    """A loaded file."""

    def __init__(self, model: str, tokenizer: str, threads: int, capacity: int) -> None:
        import openvino
        import openvino_genai

        self.library, self.tensor = openvino_genai, openvino.Tensor
        self.numbers = count()
        settings = openvino_genai.SchedulerConfig()
        settings.max_num_batched_tokens = PIECE
        settings.enable_prefix_caching = False
        settings.num_kv_blocks = _MOST * capacity // 32
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            model,
            openvino_genai.Tokenizer(tokenizer),
            settings,
            "CPU",
            INFERENCE_NUM_THREADS=threads,
        )

    def prefill(self, tokens: int) -> str:
        """Time of a prompt and its first token."""
        started = times()
        self._finished(self._requested(tokens, 1))
        return format_times(started, 1)

    def decode(self, past: int, entries: int, steps: int) -> str:
        """Time of a step of so many sequences behind `past` tokens each."""
        # A step takes so many tokens of prompts at most; sequences that are there already wait.
        fill = -(-past * entries // PIECE) + 1
        asked = [self._requested(past, fill + steps + 1) for _ in range(entries)]
        while not all(one.can_read() for one in asked):
            self.pipeline.step()
        started = times()
        for _ in range(steps):
            self.pipeline.step()
        answer = format_times(started, steps)
        self._finished(*asked)
        return answer

    def best(self, tokens: int) -> str:
        """The most probable token behind a prompt, and the logarithm of its probability."""
        asked = self._requested(tokens, 1)
        self._finished(asked)
        (result,) = asked.read_all()
        return f"{result.generated_ids[0]} {result.generated_log_probs[0]:.9g}"

    def _requested(self, tokens: int, wanted: int) -> Any:
        settings = self.library.GenerationConfig(max_new_tokens=wanted, ignore_eos=True, logprobs=1)
        text = self.tensor(tokens_at(0, tokens)[None])
        return self.pipeline.add_request(next(self.numbers), text, settings)

    def _finished(self, *asked: Any) -> None:
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()


def main() -> int:
    """Answer until the input ends."""
    model, tokenizer, threads, capacity = sys.argv[1:]
    return serve(Runner(model, tokenizer, int(threads), int(capacity)))


if __name__ == "__main__":
    sys.exit(main())
