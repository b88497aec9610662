"""A seeded sample of torch's operators, traced and exported with an axis symbolic: nothing wrong,
nothing without a type, and what the harness itself tells apart.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.opinfo.engines import differs
from tests.opinfo.entries import Entry, Sample, is_left_out, samples, symbolic_axes
from tests.opinfo.ties import choose_alike

pytestmark = pytest.mark.slow

_ENTRIES = 40
_SEED = 45


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Workers are forked, so the run is a process of its own."""
    file = tmp_path_factory.mktemp("opinfo") / "rows.jsonl"
    chosen = ["--sample", str(_ENTRIES), "--seed", str(_SEED), "--mode", "dynamic"]
    ways = ["--way", "traced", "--way", "exported", "--workers", "2", "--seconds", "600"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.opinfo", *chosen, *ways, "--json", str(file)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert file.exists(), done.stderr
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_no_answer_is_wrong_and_nothing_fails_without_a_type(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 2 * _ENTRIES
    assert [row for row in rows if row["outcome"] not in ("ok", "refused", "excluded")] == []


def test_most_are_right(rows: list[dict[str, Any]]) -> None:
    served = [row for row in rows if row["outcome"] != "excluded"]
    assert sum(row["outcome"] == "ok" for row in served) >= 0.9 * len(served), [
        (row["name"], row["why"]) for row in served if row["outcome"] != "ok"
    ]


def test_an_axis_that_all_operands_share_varies() -> None:
    (sample, *_) = samples(Entry("mm", "float32"))
    result = symbolic_axes(sample)
    assert result is not None
    axes, shorter = result
    assert axes[0] == {0}
    assert shorter[0].shape[0] == sample.tensors[0].shape[0] - 1


def test_random_numbers_are_left_out() -> None:
    assert is_left_out("nn.functional.dropout2d")
    assert is_left_out("bernoulli")
    assert not is_left_out("add")


@pytest.mark.parametrize(
    ("have", "why"),
    [
        (np.array([1.0, np.nan], "f4"), None),
        (np.array([1.0, np.nan], "f8"), "float64"),
        (np.array([[1.0, np.nan]], "f4"), r"\[1, 2\]"),
        (np.array([1.1, np.nan], "f4"), "differs by 0.1"),
        (np.array([1.0, 0.0], "f4"), "differs"),
    ],
)
def test_what_differs(have: Any, why: str | None) -> None:
    wanted = [torch.tensor([1.0, torch.nan])]
    result = differs([have], wanted, wanted)
    assert (result is None) == (why is None)
    assert why is None or re.search(why, str(result))


@pytest.mark.parametrize(
    ("name", "values", "indices", "alike"),
    [
        ("topk", [[7, 7], [5, 3]], [[0, 2], [1, 0]], True),
        ("topk", [[7, 7], [5, 3]], [[2, 0], [1, 2]], True),
        ("topk", [[7, 7], [5, 3]], [[2, 2], [1, 2]], False),
        ("topk", [[7, 7], [5, 3]], [[2, 1], [1, 2]], False),
        ("topk", [[7, 7], [5, 3]], [[2, 0], [1, -1]], False),
        ("topk", [[7, 6], [5, 3]], [[2, 0], [1, 2]], False),
        ("sort", [[7, 7], [5, 3]], [[2, 0], [1, 2]], False),
    ],
)
def test_indices_of_equal_elements(name: str, values: Any, indices: Any, alike: bool) -> None:
    x = torch.tensor([[7, 1, 7], [3, 5, 3]])
    sample = Sample(torch.topk, (x,), ((None, 2, 1), {}))
    wanted = list(torch.topk(x, 2))
    outputs = [np.array(values), np.array(indices)]
    assert choose_alike(Entry(name, "int64"), sample, (x,), outputs, wanted) == alike
