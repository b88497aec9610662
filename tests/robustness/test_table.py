"""The table's own machinery, on rows made here."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.__main__ import main
from tests.robustness.judge import judge
from tests.robustness.page import JUDGED, page
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.rows import ROWS


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken rows leave theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def hold(run: Run) -> Outcome:
    (run.folder / "left").touch()
    return Outcome(True, {"faults": run.count, "seed": run.seed})


MET = Row("hold", "it holds", 500, hold, unproven="anything.")
BROKEN = replace(MET, name="broken", run=lambda run: Outcome(False, detail="2 of 3 lost"))


def raising(run: Run) -> Outcome:
    raise TimeoutError("no end")


RAISING = replace(MET, name="raising", run=raising)


def lacking(run: Run) -> Outcome:
    pytest.skip("Redis is not installed")


LACKING = replace(MET, name="lacking", run=lacking)


def test_names_are_unique_and_every_promise_is_stated() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.promise and row.full > 0 for row in ROWS)


@pytest.mark.parametrize(("scale", "count"), [(1, 500), (0.1, 50), (0.0001, 1)])
def test_counts_scale_down_to_one(scale: float, count: int) -> None:
    result = judge(MET, scale, 7)
    assert result.is_met
    assert result.outcome.counts == {"faults": count, "seed": 7}


def test_the_exit_status_says_whether_every_row_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1"], (MET,)) == 0
    assert main(["--seed", "1"], (MET, BROKEN)) == 1
    assert "2 of 3 lost" in capsys.readouterr().out
    assert main(["--row", "hold"], (MET, BROKEN)) == 0


def test_a_row_that_raises_is_broken_and_keeps_its_folder() -> None:
    result = judge(RAISING, 1, 0)
    assert (result.word, result.is_met) == ("broken", False)
    assert "no end" in result.outcome.detail
    assert "relaxd-raising-" in result.outcome.detail


def test_a_row_without_its_servers_is_skipped_and_not_held() -> None:
    result = judge(LACKING, 1, 0)
    assert (result.word, result.is_met) == ("skipped", False)
    assert main(["--seed", "1"], (MET, LACKING)) == 1


COUNTING = replace(MET, full=4, run=lambda run: Outcome(True, {"in hand": 2, "p99 ms": 400}))


@pytest.mark.parametrize(
    ("bounds", "is_met"),
    [
        ({"minimums": {"in hand": 0.5}}, True),
        ({"minimums": {"in hand": 0.75}}, False),
        ({"maximums": {"p99 ms": 400}}, True),
        ({"maximums": {"p99 ms": 399}}, False),
        ({"maximums": {"in hand": 2}, "minimums": {"p99 ms": 101}}, False),
    ],
)
def test_figures_outside_of_a_rows_bounds_break_it(bounds: dict[str, Any], is_met: bool) -> None:
    result = judge(replace(COUNTING, **bounds), 1, 0)
    assert result.is_met == is_met
    assert is_met == (not result.outcome.detail)


def test_a_minimum_is_never_less_than_one() -> None:
    idle = replace(COUNTING, run=lambda run: Outcome(True, {"in hand": 0}))
    result = judge(replace(idle, minimums={"in hand": 0.1}), 1, 0)
    assert not result.is_met
    assert "in hand: 0, less than 1, which is no test of the promise" in result.outcome.detail


def test_a_row_has_faults_of_every_kind_at_any_scale() -> None:
    assert replace(MET, fewest=4).scale(0.001) == 4


def test_only_whole_runs_are_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--record", "--row", "hold"], (MET, BROKEN)) == 2


def test_the_page_has_figures_and_what_they_leave_open() -> None:
    text = page([judge(MET, 1, 0), judge(LACKING, 1, 0)])
    assert "| `hold` | 500 | it holds | held | faults 500, seed 0 |" in text
    assert "skipped: Redis is not installed" in text
    assert "- `hold`: anything." in text


def test_the_page_names_the_rows_that_were_run_on_another_commit() -> None:
    results = [judge(replace(MET, name=name), 1, 0) for name in ("one", "two", "three")]
    mixed = [replace(result, commit="abc") for result in results[:2]]
    text = page([*mixed, replace(results[2], commit="def")])
    assert "commit `abc`; `three` on `def`" in text


def test_the_page_keeps_the_section_on_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, section = tmp_path / "page.md", f"{JUDGED}\n\n0 of 10 refused.\n"
    path.write_text(f"# Old\n\n{section}")
    monkeypatch.setattr("tests.robustness.__main__.PAGE", path)
    main(["--keep", str(tmp_path / "kept"), "--row", "hold", "--record"], (MET,))
    text = path.read_text()
    assert "# Old" not in text
    assert text.endswith(f"\n\n{section}")
    main(["--keep", str(tmp_path / "kept"), "--record"], (MET,))
    assert path.read_text() == text


def test_a_table_run_in_pieces_is_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.robustness.__main__.PAGE", tmp_path / "page.md")
    rows, keep = (MET, BROKEN), ["--keep", str(tmp_path / "kept"), "--seed", "3"]
    main([*keep, "--row", "broken", "--scale", "0.1"], rows)
    assert main([*keep, "--row", "hold", "--record"], rows) == 0
    text = (tmp_path / "page.md").read_text()
    assert "| `broken` | 50 | it holds | broken |" in text
    assert "| `hold` | 500 | it holds | held | faults 500, seed 3 |" in text
    assert "Full counts, but for `broken` (50 of 500); seed 3" in text
    assert "- `broken`: 2 of 3 lost" in text


def test_the_page_names_the_rows_that_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.robustness.__main__.PAGE", tmp_path / "page.md")
    main(["--keep", str(tmp_path / "kept"), "--row", "hold", "--record"], (MET, BROKEN))
    assert "## Not run at these counts\n\n`broken`." in (tmp_path / "page.md").read_text()


def test_what_was_kept_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.robustness.__main__.PAGE", tmp_path / "page.md")
    keep = ["--keep", str(tmp_path / "kept")]
    main([*keep, "--row", "hold"], (MET,))
    never = replace(MET, run=raising)
    assert main([*keep, "--record"], (never,)) == 0
    assert "Every row below at its full count" in (tmp_path / "page.md").read_text()


def test_a_run_that_was_stopped_goes_on_with_what_has_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = ["--keep", str(tmp_path / "kept"), "--resume", "--seed", "3"]
    assert main(keep, (MET, BROKEN)) == 1
    never, mended = replace(MET, run=raising), replace(BROKEN, run=hold)
    assert main(keep, (never, mended)) == 0
    assert "faults 500, seed 3" in capsys.readouterr().out, "what held before is in the table"
    for other in (["--seed", "4"], ["--seed", "3", "--scale", "0.5"]):
        assert main([*keep[:3], *other], (never,)) == 1
    main(keep, (MET,))
    monkeypatch.setattr("tests.robustness.__main__.commit", lambda: "another")
    assert main(keep, (never,)) == 1
    assert main(["--resume"], (MET,)) == 2


def test_parts_have_each_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple(replace(MET, name=f"row{number}") for number in range(5))
    for part in ("1/2", "2/2"):
        assert main(["--part", part], rows) == 0
    output = capsys.readouterr().out
    assert all(output.count(f"row{number} (") == 1 for number in range(5))


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b"])
def test_a_part_that_is_not_there_is_refused(part: str) -> None:
    with pytest.raises(SystemExit):
        main(["--part", part], (MET,))
