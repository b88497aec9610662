"""Programs run in torch and are right; what is wrong is cut down to what shows it."""

from collections.abc import Sequence
from importlib.machinery import PathFinder

import pytest

from tests.fuzz.child import Child
from tests.fuzz.judge import Judgement, Verdict
from tests.fuzz.scripts import __main__ as fuzz
from tests.fuzz.scripts.source import Script, generate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PathFinder.find_spec("torch") is None, reason="torch is not installed"),
]


def shapes(scripts: Sequence[Script]) -> list[list[tuple[int, ...]]]:
    """Compute both results of each program at every size with torch."""
    import torch

    from tests.fuzz.scripts import engine

    return [
        [
            output.shape
            for rows in script.rows
            for output in engine.run(
                engine.script_module(script.source), script, rows, torch.float32
            )
        ]
        for script in scripts
    ]


@pytest.mark.long
def test_seeds_draw_programs_that_run() -> None:
    scripts = [generate(seed) for seed in range(40)]
    child = Child("tests.fuzz.scripts.test_scripts:shapes", 180.0, torch=True)
    try:
        result = child.ask(scripts)
    finally:
        child.stop()
    assert result == [
        [(rows, script.columns) for rows in script.rows for _ in "ab"] for script in scripts
    ]


def test_a_failure_is_cut_down() -> None:
    script = Script(("a = a + b", "b = torch.sin(a)", "a = b * 2.0"), 8, (1,), 0)

    def judge(script: Script) -> Judgement:
        return Judgement(Verdict.OURS if "sin" in script.source else Verdict.RIGHT)

    assert fuzz.shrink(script, judge(script), judge).statements == ("b = torch.sin(a)",)


def test_some_programs_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--programs", "2", "--seed", "1", "--geometry", "256/16", "--seconds", "600"]
    assert fuzz.main(arguments) == 0
    assert "2 programs, 10 runs, 0 wrong, 0 crashes" in capsys.readouterr().out
