"""SmolLM2's answers by a bundle beside those of the same weights in torch."""

import re
import subprocess
import sys

from benchmarks.llm.files import smollm

DIMS = {
    "batch_size": (1, 1),
    "sequence_length": (1, 128),
    "past_sequence_length": (0, 256),
    "total_sequence_length": (1, 256),
}


def require_torchs_answers(bundle: str, *options: str) -> str:
    """What `benchmarks.answers reference` says, whose answers all have to be torch's."""
    command = ["-m", "benchmarks.answers", "reference", str(smollm()), bundle, *options]
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^20 of 20 answers are torch's", ran.stdout, re.MULTILINE), ran.stdout
    return ran.stdout
