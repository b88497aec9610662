"""Programs run in torch and are right; what is wrong is cut down to what shows it."""

import importlib.util

import pytest

from tests.fuzz.judge import Judgement, Verdict
from tests.fuzz.scripts import __main__ as fuzz
from tests.fuzz.scripts.source import Script, generate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed"),
]


def test_seeds_draw_programs_that_run() -> None:
    import torch

    from tests.fuzz.scripts import engine

    for script in map(generate, range(60)):
        module = engine.scripted(script.source)
        for rows in script.rows:
            for output in engine.run(module, script, rows, torch.float32):
                assert output.shape == (rows, script.columns)


def test_a_failure_is_cut_down() -> None:
    script = Script(("a = a + b", "b = torch.sin(a)", "a = b * 2.0"), 8, (1,), 0)

    def judge(script: Script) -> Judgement:
        return Judgement(Verdict.OURS if "sin" in script.source else Verdict.RIGHT)

    assert fuzz.shrink(script, judge(script), judge).statements == ("b = torch.sin(a)",)


def test_some_programs_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--programs", "2", "--seed", "1", "--geometry", "256/16", "--seconds", "600"]
    assert fuzz.main(arguments) == 0
    assert "2 programs, 10 runs, 0 wrong, 0 crashes" in capsys.readouterr().out
