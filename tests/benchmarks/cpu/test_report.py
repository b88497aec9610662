"""Rows, summaries, the file and the page of a run, without timing anything."""

import json
import sys

import pytest

from benchmarks import documents
from benchmarks.cpu import callers, document, page, report
from benchmarks.cpu.__main__ import main
from relaxd.timing.intervals import Interval

WORK = {"products": 10**9, "matmuls": 0}


def _engine(*times):
    middle = sorted(times)[len(times) // 2]
    return {
        "rounds": list(times),
        "milliseconds": middle,
        "low": min(times),
        "high": max(times),
        "calls": len(times),
        "difference": 0.0,
    }


def _row(model, ours, peer, others=0.0):
    engines = {"relaxd": _engine(*[ours] * 6), "onnxruntime": _engine(*[peer] * 6)}
    return {
        "label": model,
        "model": model,
        "engines": engines,
        "others": [0.0] * 5 + [others],
        "work": WORK,
        "peak_gflops": 100.0,
    }


AHEAD, BEHIND = _row("minilm", 1.0, 2.0), _row("magika", 3.0, 2.0)
EVEN, NOISY = _row("resnet50", 1.0, 1.0), _row("vit_s", 1.0, 9.0, others=0.2)


def test_verdicts_and_the_mean_leave_noisy_rows_out():
    rows = [AHEAD, BEHIND, EVEN, NOISY]
    assert [report.verdict(row) for row in rows] == [
        report.Verdict.AHEAD,
        report.Verdict.BEHIND,
        report.Verdict.EVEN,
        report.Verdict.NOISY,
    ]
    assert report.geometric_mean(rows).middle == pytest.approx((0.5 * 1.5) ** (1 / 3))
    assert report.summary(rows) == (
        "geometric mean of the ratios 0.91 (0.91-0.91); 1 ahead, 1 even, 1 behind; 1 noisy, of"
        " which nothing is concluded: others used more than 5% of the processors"
    )


def test_a_row_without_a_peer_has_no_verdict():
    row = {**AHEAD, "engines": {"relaxd": AHEAD["engines"]["relaxd"]}}
    assert report.ratio(row) is None
    assert report.summary([row]).endswith("1 without a ratio")


def test_a_table_has_a_line_for_each_row_and_equal_numbers_of_columns():
    failing = {**EVEN, "engines": {**EVEN["engines"], "openvino": {"error": "no"}}}
    lines = report.markdown([AHEAD, failing], ["relaxd", "onnxruntime", "openvino"]).splitlines()
    assert {line.count("|") for line in lines} == {8}
    assert lines[2].startswith("| minilm | 1.00 ms (1.00-1.00) | 2.00 ms")
    assert "| 0.50 (0.50-0.50) | ahead | 1000 GFLOP/s (1000%) |" in lines[2]
    assert "| fails | 1.00 (1.00-1.00) | even |" in lines[3]


def test_the_file_keeps_quiet_rows_of_models_that_are_not_asked_for_again(tmp_path):
    new = document.new_document(2, ["relaxd", "onnxruntime"])
    file = tmp_path / "cpu.json"
    documents.write(document.with_rows(new, [NOISY, BEHIND, AHEAD]), file)
    assert [row["model"] for row in json.loads(file.read_text())["rows"]] == [
        "minilm", "magika", "vit_s",
    ]  # fmt: skip
    retained = document.resume(new, file, [])["rows"]
    assert [row["model"] for row in retained] == ["minilm", "magika"]
    assert document.resume(new, file, ["magika"])["rows"] == retained[:1]
    assert document.resume({**new, "threads": 1}, file, [])["rows"] == []


def test_what_stands_between_two_marks_is_replaced():
    text = "before\n<!-- table -->\nold\n<!-- /table -->\nafter\n"
    assert documents.between(text, "table", "new") == (
        "before\n<!-- table -->\n\nnew\n\n<!-- /table -->\nafter\n"
    )
    with pytest.raises(ValueError, match="not found"):
        documents.between(text, "chart", "new")


def test_the_page_has_the_marks():
    text = page.PAGE.read_text()
    assert documents.between(text, "table", "x").count("<!-- table -->") == 1


def test_a_section_says_where_when_and_what():
    record = document.with_rows(document.new_document(2, ["relaxd", "onnxruntime"]), [AHEAD, EVEN])
    record["machine"] |= {"processor": "Some CPU", "cores": 2, "isa": "x86-64-v4"}
    record |= {"date": "2026-01-02", "callers": [{**AHEAD, "callers": 4}]}
    first, table, link, calls = page.section(record).split("\n\n")
    assert first.startswith("Some CPU, 2 cores, x86-64-v4 with vectors of ")
    assert (
        "two threads, 2026-01-02: 2 rows of 2 models, 6 rounds, geometric mean of the ratios"
        in first
    )
    assert table == report.markdown(record["rows"], record["engines"]).strip()
    assert link == "[Every round](cpu.json)"
    assert calls.splitlines()[2] == "| minilm | 4 | 1000.0 | 500.0 | 0.50 (0.50-0.50) | ahead |"


def test_what_an_engine_said_is_given_once():
    failed = {"engines": {"iree": {"error": "no kernel"}, "relaxd": AHEAD["engines"]["relaxd"]}}
    lacking = {"engines": {"torch.compile": {"error": "LookupError: no such module"}}}
    assert report.errors([failed, failed, lacking]) == [("iree", "no kernel")]


def test_calls_at_once_have_a_line_a_row():
    row = {**AHEAD, "callers": 2}
    assert callers.line(row).endswith("calls/s: relaxd 1000.0, onnxruntime 500.0")


def test_too_few_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--rounds", "5"])
    assert "6 or more" in capsys.readouterr().err


@pytest.mark.parametrize("resume", [False, True])
def test_one_command_writes_the_part_of_single_kernels_too(monkeypatch, tmp_path, resume):
    called = []
    file = tmp_path / "cpu.json"
    documents.write(document.with_rows(document.new_document(2, ["relaxd"]), [EVEN]), file)
    monkeypatch.setattr(page, "FILE", file)
    monkeypatch.setattr(page, "regenerate", lambda record: called.append("page"))
    monkeypatch.setattr("benchmarks.cpu.__main__.ROWS", {})
    monkeypatch.setattr("subprocess.call", lambda command: called.append(command) or 3)
    asked = ["--engines", "relaxd", "--regenerate", *(["--resume"] if resume else [])]
    assert main(asked) == 1  # as the other command failed
    command = [sys.executable, "-m", "benchmarks.kernels", "--regenerate"]
    assert called == ["page", [*command, "--resume"] if resume else command]


def test_the_best_peer_is_that_of_the_least_median_not_of_the_least_round():
    rounds = {"relaxd": [1.0] * 3, "onnxruntime": [0.5, 3.0, 3.1], "openvino": [2.0, 2.1, 2.2]}
    assert report.best_peer(rounds) == "openvino"
    assert report.best_peer({"iree": [1.0]}) is None


@pytest.mark.parametrize(
    ("low", "high", "quiet", "expected"),
    [
        (0.8, 0.99, True, report.Verdict.AHEAD),
        (0.8, 1.0, True, report.Verdict.EVEN),
        (0.9, 1.1, True, report.Verdict.EVEN),
        (1.0, 1.2, True, report.Verdict.EVEN),
        (1.01, 1.2, True, report.Verdict.BEHIND),
        (0.8, 0.9, False, report.Verdict.NOISY),
        (1.1, 1.2, False, report.Verdict.NOISY),
    ],
)
def test_a_verdict_needs_the_whole_interval_and_a_quiet_machine(low, high, quiet, expected):
    assert report.conclude(Interval(0.95, low, high), quiet) is expected
