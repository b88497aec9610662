import json
from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.messages import CompileJob
from relaxd.contract.report import Report
from relaxd.loader.report import report_of
from tests.bundles import seal
from tests.service.fakes import write_bundle

PROFILE = {
    "measured": True,
    "machine": {"processor": "A Processor", "threads": 2, "load_average": [0.5, 0.4, 0.3]},
    "load_ms": 41.0,
    "points": [
        {
            "label": "max",
            "dims": {"n": 8},
            "median_ms": 2.0,
            "p25_ms": 1.9,
            "p75_ms": 2.2,
            "min_ms": 1.8,
            "runs": 50,
            "reference": {"median_ms": 3.0, "engine": "onnxruntime 1.31.1"},
        }
    ],
    "operators": {
        "label": "max",
        "dims": {"n": 8},
        "rows": [{"name": "fused_matmul", "calls": 1, "ms": 1.9, "share": 0.95}],
    },
}
KERNELS = [
    {"name": "fused_matmul", "family": "matmul", "tile": "6x16", "nodes": ["a<b>", "[bold]c"]}
]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (tmp_path / "net.onnx").write_bytes(b"a model")
    write_bundle(CompileJob(str(tmp_path / "net.onnx"), {}, "native", str(folder), "net"), folder)
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    seal(folder, "kernels.json", {"kernels": KERNELS})
    return folder


def test_a_build_explains_itself(relaxd: Any, bundle: Path) -> None:
    shown = relaxd("show", str(bundle)).out
    assert "Latency on A Processor, 2 threads, load 0.5" in shown
    line = next(line for line in shown.splitlines() if line.startswith("n=8"))
    assert line.split() == ["n=8", "2", "ms", "1.9", "to", "2.2", "1.8", "50", "3", "ms", "1.50"]
    assert "95% of the time is in 1 call of" in shown


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
