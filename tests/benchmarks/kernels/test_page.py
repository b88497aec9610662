"""The file and the page of a run, without timing anything."""

import json
from dataclasses import replace

import pytest

from benchmarks import documents
from benchmarks.kernels import document, page
from benchmarks.kernels.case import Arithmetic, Case

CACHES = {"l1": 1 << 15, "l2": 1 << 20, "l3": 1 << 25}
CASES = [
    Case("winograd", "64 at 56", str, {}, {}, 1000, 100, computed=250),
    Case("matmul", "1x2x3", str, {}, {}, 100, 100, copies=1 << 20),
    Case("matmul", "1x2x3", str, {}, {}, 400, 1, arithmetic=Arithmetic.BFLOAT16),
    Case("copy", "4x4", str, {}, {}, 0, 128),
]


def _row(case, others=0.0):
    peak = {"peak_gflops": 50.0, "share_of_peak": 0.5}
    reads = {"bandwidth_gb_s": 20.0, "share_of_bandwidth": 0.45}
    return {**document.identity(case), "seconds": 1e-8, **peak, **reads, "others": others}


@pytest.fixture
def record(monkeypatch):
    """A document of all cases, of a machine of its own."""
    machine = {"processor": "Some CPU", "cores": 2, "isa": "x86-64-v4", "vector_bits": 512}
    monkeypatch.setattr(documents, "machine", lambda: machine)
    new = {
        **document.new_document(),
        "date": "2026-01-02",
        "caches": CACHES,
        "peaks": {"float32": 50.0, "bfloat16": 100.0},
        "bandwidth": [{"bytes": 1 << 10, "gb_s": 80.0}, {"bytes": 1 << 26, "gb_s": 20.0}],
    }
    for case in reversed(CASES):
        new = document.with_row(new, _row(case), CASES)
    return new


def test_rows_are_in_the_order_of_the_cases(record):
    assert [row["group"] for row in record["rows"]] == [
        "winograd", "matmul", "matmul, bfloat16", "copy",
    ]  # fmt: skip


def test_a_section_says_where_we_are_and_what_bounds_it(record):
    first, table, winograd, link = page.section(record).split("\n\n")
    assert first == (
        "Some CPU, 2 cores, x86-64-v4 with vectors of 512 bits, one thread, 2026-01-02: 4 cases."
        " Measured ceilings: 50 of float32, 100 of bfloat16 in GFLOP/s of multiply-adds, and"
        " 57 from L1, 42 from L2, 27 from L3, 20 from memory in GB/s of reads."
    )
    assert table.splitlines()[2:] == [
        "| winograd | arithmetic | 1 | 25 | 50% | 10 | 2.5 | 50% |",
        "| matmul | memory | 1 | 10 | 50% | 10 | 1 | 45% |",
        "| matmul, bfloat16 | arithmetic | 1 | 40 | 50% | 0.1 | 400 | 50% |",
        "| copy | L1 | 1 |  |  | 13 |  | 45% |",
    ]
    assert winograd.endswith("In operations of the direct form it computes 100 GFLOP/s.")
    assert link == "[Every case](kernels.json)"


def test_a_family_of_several_cases_has_a_median_and_its_ends(record):
    other = replace(CASES[3], shape="8x8")
    slower = {**_row(other), "seconds": 3e-8, "share_of_bandwidth": 0.15}
    more = document.with_row(record, slower, [*CASES, other])
    assert "| copy | L1 | 2 |  |  | 8.5 (4.3-13) |  | 30% (15-45%) |" in page.section(more)


def test_families_without_an_instruction_of_their_own_are_named(record):
    assert "are of the peak of float32" not in page.section(record)
    plain = {**record, "peaks": {"float32": 50.0, "int8": 200.0}}
    assert "\n\nShares of `matmul, bfloat16` are of the peak of float32: this" in page.section(
        plain
    )


def test_noise_is_said_and_winograd_explained_only_where_it_is(record):
    noisy = {**record, "rows": [_row(CASES[1], others=0.2), _row(CASES[3])]}
    section = page.section(noisy)
    assert " In 1 of them others used the processors as well." in section
    assert "Winograd" not in section


def test_the_file_has_what_follows_from_each_row(record, tmp_path):
    file = tmp_path / "kernels.json"
    document.write(record, file)
    row = json.loads(file.read_text())["rows"][1]
    assert (row["gflops"], row["gb_s"], row["flop_per_byte"]) == (10.0, 10.0, 1.0)
    assert (row["bound"], row["share_of_attainable"]) == ("memory", 0.45)


def test_a_run_goes_on_after_the_quiet_cases_of_the_same_machine(record, tmp_path):
    file = tmp_path / "kernels.json"
    new = {**document.new_document(), "caches": CACHES}
    assert document.resume(new, file, CASES) == new
    record["rows"][3] = _row(CASES[3], others=0.2)
    document.write(record, file)
    retained = document.resume(new, file, CASES)
    assert document.missing_cases(retained, CASES) == CASES[3:]
    assert (retained["peaks"], retained["bandwidth"]) == (record["peaks"], record["bandwidth"])
    # Not named again, or defined otherwise since.
    assert document.missing_cases(document.resume(new, file, CASES[1:]), CASES) == [
        CASES[0],
        CASES[3],
    ]
    other = [replace(CASES[0], operations=999), *CASES[1:]]
    assert document.missing_cases(document.resume(new, file, other), other) == [other[0], CASES[3]]
    for changed in ({"machine": {}}, {"caches": {}}):
        again = document.resume({**new, **changed}, file, CASES)
        assert (again["rows"], again["peaks"]) == ([], {})


def test_the_page_has_the_marks():
    text = page.PAGE.read_text()
    assert documents.between(text, page.MARK, "x").count("<!-- roofline -->\n\nx\n\n<!--") == 1
