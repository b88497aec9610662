import json

import pytest

from tests.zoo import __main__ as command
from tests.zoo.case import Case, Exporter, sizes
from tests.zoo.measure import Measured, Outcome

CASES = {
    name: Case(name, lambda: None, {"n": "1:2"}, sizes("n", (1,), (2,))) for name in ("a", "b", "c")
}


@pytest.fixture
def runs(monkeypatch):
    """The cases that were measured: `b` fails while it is in `broken`, which the test changes."""
    names, broken = [], {"b"}

    def measured(case, seconds):
        names.append(case.name)
        outcome = Outcome.REFUSED if case.name in broken else Outcome.OK
        return Measured(case.name, Exporter.PACKAGED.value, outcome, 1.0, case.points, (0.0, 1e-6))

    monkeypatch.setattr(command, "CASES", CASES)
    monkeypatch.setattr(command, "measure", measured)
    return names, broken


def test_a_run_goes_on_where_one_stopped(runs, tmp_path):
    names, broken = runs
    arguments = ["--json", str(tmp_path / "zoo.json"), "--resume"]
    assert command.main(["--cases", "b", "c", *arguments]) == 1
    broken.clear()
    assert command.main(["--cases", "a", *arguments]) == 0
    assert command.main([*arguments, "--markdown", str(tmp_path / "zoo.md")]) == 0
    assert names == ["b", "c", "a", "b"]
    retained = json.loads((tmp_path / "zoo.json").read_text())
    assert {each["name"]: each["outcome"] for each in retained} == dict.fromkeys("abc", "ok")
    rows = (tmp_path / "zoo.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| a", "| b", "| c"]


def test_a_skipped_case_is_no_failure(monkeypatch, capsys):
    monkeypatch.setattr(command, "CASES", CASES)
    skipped = Measured("a", Exporter.PACKAGED.value, Outcome.SKIPPED, error="no package")
    monkeypatch.setattr(command, "measure", lambda case, seconds: skipped)
    assert command.main(["--cases", "a"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 0 within the tolerance, 1 skipped"
