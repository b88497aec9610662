import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from relaxd.cli.showing import render
from relaxd.contract.bundle.report import (
    AloneReport,
    ComparedPoint,
    DimReport,
    FallbackReport,
    NumericsReport,
    OutputReport,
    QuantizedReport,
    Report,
    TargetReport,
    WeightsReport,
)
from relaxd.loader.report import report_of
from tests.relaxd.cli.conftest import PROFILE
from tests.support.bundles import seal


@pytest.fixture
def bundle(measured: Path) -> Path:
    return measured


def test_a_build_explains_itself(relaxd: Any, bundle: Path) -> None:
    shown = relaxd("show", str(bundle)).out
    assert "Latency on A Processor, 2 threads, load 0.5" in shown
    line = next(line for line in shown.splitlines() if line.startswith("n=8"))
    assert line.split() == ["n=8", "2", "1.9", "to", "2.2", "1.8", "50", "3", "1.50"]
    assert "95 % of the time is in 1 call of matmul kernels." in shown


def test_the_document_is_that_of_the_library(relaxd: Any, bundle: Path) -> None:
    document = relaxd("show", str(bundle), "--json").json
    assert Report.from_json(document) == report_of(bundle)
    assert document["schema"] == "relaxd.report/v1"


def test_a_notebook_shows_tables_and_no_markup_of_the_model(bundle: Path) -> None:
    report = Report.from_json(
        {**report_of(bundle).to_json(), "name": "<script>", "sentences": ["a & b"]}
    )
    html = report._repr_html_()
    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html
    assert "<td>2</td><td>1.9</td><td>2.2</td><td>3</td>" in html


def test_several_machines_measured_it(bundle: Path) -> None:
    other = {**PROFILE, "measured_at": "2026-01-02T00:00:00+00:00", "load_ms": 7.0}
    (bundle / "profile-0123456789ab.json").write_text(json.dumps(other))
    report = report_of(bundle)
    assert len(report.profiles) == 2
    assert report.profile is not None
    assert report.profile.load_ms == 7.0


def test_what_is_neither_here_nor_a_reference_is_refused(relaxd: Any) -> None:
    refused = relaxd("show", "out of nowhere/")
    assert refused.code == 2
    assert "names no artifact" in refused.err


def test_the_table_of_kernels_has_their_work_and_the_machine_its_peaks(
    relaxd: Any, bundle: Path
) -> None:
    row = {"flops": 2_000_000, "bytes": 3 << 20, "bound": "memory", "percent_of_peak": 81.4}
    times = {**PROFILE["operators"]["rows"][0], **row}
    operators = {**PROFILE["operators"], "rows": [times]}
    machine = {**PROFILE["machine"], "peak_gflops": 232.2, "peak_gb_s": 41.1}
    profile = {**PROFILE, "operators": operators, "machine": machine}
    (bundle / "profile.json").write_text(json.dumps(profile))
    shown = relaxd("show", str(bundle)).out
    lines = shown.splitlines()
    index = next(
        index for index, line in enumerate(lines) if line.rstrip().endswith("fused_matmul")
    )
    assert "2 M   3.0 MiB  81 % memory" in lines[index]
    assert lines[index + 1].strip() == "matmul 6x16: a<b>, [bold]c"
    assert "peaks of this machine: 232 GFLOP/s, 41 GB/s from memory" in shown


def test_points_of_a_grid_are_summed_up_by_their_fit(relaxd: Any, bundle: Path) -> None:
    points = [*PROFILE["points"], {"label": "grid-1", "dims": {"n": 4}, "median_ms": 1.0}]
    terms = [{"ms": 0.5, "dims": {}}, {"ms": 0.02, "dims": {"n": 2}}]
    cost = {"terms": terms, "points": 2, "error_median": 0.01, "error_max": 0.05}
    (bundle / "profile.json").write_text(json.dumps({**PROFILE, "points": points, "cost": cost}))
    shown = relaxd("show", str(bundle)).out
    assert "n=4" not in shown
    assert "and 1 point of a grid" in shown
    assert "about 0.5 + 0.02·n^2 ms, off by 1.0% at the median and 5.0% at most" in shown


def test_errors_are_listed_by_point_and_output(relaxd: Any, bundle: Path) -> None:
    def output(name: str, *parts: float) -> dict[str, Any]:
        points = [
            {"label": "p", "dims": {"n": n}, "verdict": "passed", "of_tolerance": part}
            for n, part in enumerate(parts, 1)
        ]
        return {"name": name, "verdict": "passed", "points": points}

    outputs = [output("exact", 0.0, 0.0), output("near", 0.0, 0.125)]
    seal(bundle, "numerics.json", {"verdict": "passed", "outputs": outputs})
    lines = relaxd("show", str(bundle)).out.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("DIMS  near"))
    assert lines[start - 1].strip() == "Error in % of what is allowed"
    assert lines[start].split() == ["DIMS", "near", "exact"]
    assert [line.split() for line in lines[start + 1 : start + 3]] == [
        ["n=1", "exact", "exact"],
        ["n=2", "12.50%", "exact"],
    ]


def test_weights_in_fewer_bits_state_what_they_save_and_change(relaxd: Any, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    layers = {f"w{i}": {"form": "int4", "shape": [1024, 512], "bytes": 320 << 10} for i in range(3)}
    retained = {f"k{i}": "other operators read it too" for i in range(6)}
    stored = {"form": "int4", "block": 32, "layers": layers, "kept": retained}
    output = {"name": "y", "error": 0.0871, "max_abs": 0.5, "cosine": 0.99621, "argmax": 0.975}
    weights = {"form": "int4", "error": 0.0871, "limit": 0.1, "outputs": [output]}
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "stored": stored}))
    seal(bundle, "numerics.json", {"verdict": "passed", "weights": weights})
    shown = relaxd("show", str(bundle)).out
    line = "3 of 9 large weights are int4 in blocks of 32: 960.0 KiB in place of 6.0 MiB"
    assert line in shown
    assert "k0 is not quantized: other operators read it too" in shown
    assert "and 2 others are not quantized" in shown
    row = next(line for line in shown.splitlines() if "8.71%" in line)
    assert row.split() == ["y", "8.71%", "0.5", "0.99621", "97.5%"]
    assert "against the model's own weights, at most 10.00% is allowed" in shown


def test_calibrated_weights_are_counted(relaxd: Any, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    layers = {f"w{i}": {"form": "int4", "shape": [1024, 512], "bytes": 320 << 10} for i in range(3)}
    layers["w2"] |= {"nearest": "rows of it are read"}
    stored = {"form": "int4", "block": 32, "calibration": "gptq", "layers": layers, "kept": {}}
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "stored": stored}))
    shown = relaxd("show", str(bundle)).out
    assert "2 of them are quantized with gptq" in shown
    assert "1 rounded to nearest: rows of it are read" in shown
    document = relaxd("show", str(bundle), "--json").json["stored"]
    assert document["calibration"] == "gptq"
    assert document["nearest"] == {"w2": "rows of it are read"}


def test_a_trace_is_written_beside_what_is_printed(relaxd: Any, bundle: Path) -> None:
    timeline = [{"name": "fused_matmul", "start_us": 0.0, "us": 1900.0}]
    operators = {**PROFILE["operators"], "timeline": timeline}
    (bundle / "profile.json").write_text(json.dumps({**PROFILE, "operators": operators}))
    ended = relaxd("show", str(bundle), "--trace", "run.json", "--json")
    assert (ended.code, ended.json["name"]) == (0, "net")
    *_, event = json.loads(Path("run.json").read_text())["traceEvents"]
    assert (event["name"], event["cat"], event["dur"]) == ("fused_matmul", "matmul", 1900.0)
    assert event["args"]["nodes"] == ["a<b>", "[bold]c"]
    assert relaxd("show", str(bundle), "--trace", "no/run.json").code == 2


def test_a_profile_without_a_timeline_has_no_trace(relaxd: Any, bundle: Path) -> None:
    ended = relaxd("show", str(bundle), "--trace", "run.json")
    assert "no profile that tells when kernels ran" in ended.err
    assert not Path("run.json").exists()


def test_what_decided_for_departing_outputs_is_shown(relaxd: Any, bundle: Path) -> None:
    evidence = {
        "why": "it cannot be compared element by element",
        "samples": 3,
        "error_rms": 0.02,
        "noise_rms": 0.018,
        "argmax": 0.985,
        "perturbed_argmax": 0.98,
    }
    exact = {"library_error": 1e-7, "reference_error": 2.5, "error_rms": None}
    outputs = [
        {"name": "logits", "verdict": "statistical", "spread": 2.0, "evidence": evidence},
        {"name": "boxes", "verdict": "reference_inexact", "spread": 1.0, "evidence": exact},
        {"name": "plain", "verdict": "passed", "max_abs": 0.0},
    ]
    document = {"verdict": "statistical", "float64": "float64", "outputs": outputs}
    seal(bundle, "numerics.json", document)
    shown = " ".join(relaxd("show", str(bundle)).out.split())
    assert "reference inexact" in shown
    assert "logits: it cannot be compared element by element; root mean square" in shown
    assert "the library 0.01, perturbed references 0.009" in shown
    assert "reference's in 98.5% of the rows, in perturbed references 98.0%" in shown
    assert "boxes: largest distance from float64: the library 1e-07, the reference 2.5" in shown
    assert "plain:" not in shown
    assert "float64: float64" in shown


def test_at_80_columns_no_name_is_folded(
    relaxd: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("fused_panel_matmul_tir_sigmoid", "vm.builtin.alloc_storage", "vm.builtin.reshape")
    work = {"flops": 2_000_000, "bytes": 3 << 20, "bound": "compute", "percent_of_peak": 81.4}
    rows = [{"name": name, "calls": 3, "ms": 0.5, "share": 0.25, **work} for name in names]
    dims = {"batch": 128, "seq": 1024}
    points = [{**PROFILE["points"][0], "dims": dims, "runs": 240, "stable": False}]
    times = {"operators": {**PROFILE["operators"], "rows": rows}, "points": points}
    (bundle / "profile.json").write_text(json.dumps({**PROFILE, **times}))
    output = {"name": "last_hidden_state", "verdict": "passed", "max_abs": 1.8e-4, "range": 372.0}
    judged = {**output, "atol": 1e-4, "rtol": 1e-3, "worst": {"dims": dims}}
    seal(bundle, "numerics.json", {"verdict": "passed", "outputs": [judged]})
    monkeypatch.setenv("COLUMNS", "80")
    shown = relaxd("show", str(bundle)).out
    for full in (names[0], "batch=128 seq=1024", "last_hidden_state"):
        assert full in shown
    assert "vm.builtin" not in shown
    assert "virtual machine" in shown


def test_a_point_that_was_not_measured_has_a_footnote(
    relaxd: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "its tensors would take more memory than the budget of the profile admits"
    skipped = [
        {"label": label, "dims": {"n": n}, "reason": reason} for label, n in (("a", 6), ("b", 7))
    ]
    (bundle / "profile.json").write_text(json.dumps({**PROFILE, "left_out": skipped}))
    monkeypatch.setenv("COLUMNS", "80")
    shown = relaxd("show", str(bundle)).out
    rows = [line.split() for line in shown.splitlines() if line.startswith(("n=6", "n=7"))]
    assert rows == [["n=6", "-"], ["n=7", "-"]]
    assert shown.count("- not measured: its tensors would take") == 1


def test_layers_that_stay_for_their_error_are_counted_apart() -> None:
    groups = (AloneReport(("a", "b"), 0.03, kept=True), AloneReport(("c",), 0.01))
    precision = WeightsReport("int8", fallback=FallbackReport(0.0608, 0.01, groups))
    retained = {"a": "0.03", "b": "0.03", "few": "it has fewer than 8 columns"}
    report = Report(
        "model",
        TargetReport("native"),
        narrow=QuantizedReport("int8", 1, retained, bfloat16=2),
        numerics=NumericsReport(precision=precision),
    )
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render(report))
    shown = console.export_text()
    assert "1 of 6 matmuls and convolutions compute in int8, 2 bfloat16" in shown
    assert "1 stay float32: it has fewer than 8 columns" in shown
    assert "2 stay float32: with all of them quantized, an output changes by 6.08%" in shown
    assert "0.03" not in shown


@pytest.mark.parametrize("width", [40, 80, 128, 200])
def test_cells_never_become_columns_of_single_words(width: int) -> None:
    worst = ComparedPoint("max", {"batch": 8, "sequence_length": 128})
    output = OutputReport(
        "last_hidden_state",
        verdict="reference_inexact",
        max_abs=1.2e-5,
        range=12.3,
        atol=1e-4,
        rtol=1e-3,
        slack=0.01,
        worst=worst,
    )
    report = Report(
        "model",
        TargetReport("native"),
        dims=(DimReport("sequence_length", 8, 512, 8, verified_up_to=512),),
        numerics=NumericsReport("executed", "reference_inexact", outputs=(output,)),
    )
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(report))
    lines = [line.strip() for line in console.export_text().splitlines()]
    text = " ".join(lines)
    allowed = "atol 0.0001 + rtol 0.001 + rounding 0.01"
    assert allowed in text
    assert "reference inexact" in text
    assert "8 to 512, multiples of 8" in text
    piped = Console(width=width, file=io.StringIO(), record=True, soft_wrap=True)
    piped.print(render(report))
    assert allowed in piped.export_text()
    assert ("LARGEST VALUE" in text) == (width == 200)
    assert ("largest value 12.3; worst at batch=8 sequence_length=128" in text) == (width < 200)
