import json

import pytest
from typer.testing import CliRunner

from relaxd.cli.app import app


def bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout


def test_every_combination_is_timed(bundles):
    code, out = bench(
        bundles / "dims", "--dim", "n=1,8", "--dim", "m=2,64", "--runs", 5, "--threads", 1, "--json"
    )
    report = json.loads(out)
    assert code == 0
    assert report["threads"] == 1
    assert [point["dims"] for point in report["points"]] == [
        {"n": n, "m": m} for n in (1, 8) for m in (2, 64)
    ]
    for point in report["points"]:
        assert point["runs"] == 5
        assert 0 < point["min_ms"] <= point["median_ms"] <= point["p95_ms"]
        assert point["calls_per_s"] > 0


def test_dims_left_out_take_one_value(bundles):
    report = json.loads(bench(bundles / "dims", "--runs", 1, "--warmup", 0, "--json")[1])
    assert [point["dims"] for point in report["points"]] == [{"n": 1, "m": 2}]


def test_a_table_for_people(bundles):
    code, out = bench(bundles / "dims", "--dim", "n=1,8", "--runs", 2)
    assert code == 0
    assert out.splitlines()[0].split() == [
        "N",
        "M",
        "MEDIAN",
        "ms",
        "P95",
        "ms",
        "MIN",
        "ms",
        "CALLS/s",
    ]
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["1", "2"], ["8", "2"]]


@pytest.mark.parametrize("dim", ["n=1,9", "n=", "n=a", "n", "m=3", "q=1"])
def test_bad_dims(bundles, dim):
    code, out = bench(bundles / "dims", "--dim", dim, "--json")
    assert code == 2
    assert json.loads(out)["error"]["field"] == f"dims.{dim[0]}"


def test_a_dim_given_twice(bundles):
    assert bench(bundles / "dims", "--dim", "n=1", "--dim", "n=2")[0] == 2
