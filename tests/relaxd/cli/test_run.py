import json

import numpy as np
import pytest
from typer.testing import CliRunner

from relaxd.cli.app import app


def relaxd(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}
    )
    return result.exit_code, result.stdout, result.stderr


def run(bundle, *arguments: object) -> dict:
    code, out, err = relaxd("run", bundle, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_drawn_inputs_at_the_least_dims(bundles):
    report = run(bundles / "dims")
    assert report["model"] == "dims"
    assert report["outputs"]["y"]["shape"] == [1, 2]
    assert report["seconds"] > 0


def test_the_seed_decides_the_draw(bundles):
    same, again, other = (run(bundles / "dims", "--seed", seed)["outputs"] for seed in (1, 1, 2))
    assert same == again != other


def test_given_and_drawn_inputs_agree_on_their_dims(bundles, tmp_path):
    x, scale = np.ones((3, 6), "float32"), np.float32(0)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "more.npz", scale=scale, x=np.zeros((1, 1), "float32"))
    saved = tmp_path / "out.npz"
    report = run(
        bundles / "dims",
        "--input",
        f"x={tmp_path}/x.npy",
        "--inputs",
        tmp_path / "more.npz",
        "-o",
        saved,
    )
    assert report["outputs"]["y"] == {
        "dtype": "float32",
        "shape": [3, 6],
        "min": 0,
        "max": 0,
        "mean": 0,
        "finite": True,
    }
    with np.load(saved) as outputs:
        np.testing.assert_array_equal(outputs["y"], np.zeros((3, 6), "float32"))


def test_every_dtype_is_described_and_saved(bundles, tmp_path):
    report = run(bundles / "dtypes", "--dim", "n=5", "-o", tmp_path / "out.npz")
    assert {facts["dtype"] for facts in report["outputs"].values()} >= {
        "bool",
        "bfloat16",
        "uint64",
    }
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["y_bfloat16"].dtype == np.float32
        assert outputs["y_uint64"].shape == (5,)


def test_types_that_numpy_lacks_are_read_drawn_and_saved(bundles, tmp_path):
    np.savez(
        tmp_path / "in.npz",
        x_int4=np.array([-8, 7], np.int8),
        x_float8_e5m2=np.array([0x3C, 0xBE], np.uint8),
    )
    report = run(bundles / "narrow", "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    facts = report["outputs"]["y_float8_e5m2"]
    assert (facts["dtype"], facts["min"], facts["max"]) == ("float8_e5m2", -1.5, 1)
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["y_float8_e5m2"].tolist() == [1, -1.5]
        assert outputs["y_float8_e5m2"].dtype == np.float32
        assert outputs["y_int4"].tolist() == [-8, 7]
        assert outputs["y_int4"].dtype == np.int8
        assert outputs["y_uint2"].dtype == np.uint8


def test_an_empty_output(bundles):
    assert run(bundles / "ownership", "--dim", "n=0")["outputs"]["o0"] == {
        "dtype": "float32",
        "shape": [0, 4],
        "min": None,
        "max": None,
        "mean": None,
    }


def test_a_table_for_people(bundles):
    code, out, _ = relaxd("run", bundles / "dims", "--dim", "n=3", "--threads", "1")
    assert code == 0
    assert out.splitlines()[0].split() == ["OUTPUT", "DTYPE", "SHAPE", "MIN", "MAX", "MEAN"]
    assert out.splitlines()[1].startswith("y       float32  [3, 2]")


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (("--dim", "n=9"), "dims.n", "cannot be 9"),
        (("--dim", "m=3"), "dims.m", "cannot be 3"),
        (("--dim", "q=1"), "dims.q", "no dim 'q'"),
        (("--dim", "n=1:2"), "dims.n", "is not a size"),
        (("--dim", "n"), "dims", "cannot read --dim"),
        (("--input", "x"), "inputs", "cannot read --input"),
        (("--input", "x=nothing.npy"), "inputs", "nothing.npy"),
        (("--inputs", "nothing.npz"), "inputs", "nothing.npz"),
    ],
)
def test_bad_usage(bundles, arguments, field, message):
    code, out, _ = relaxd("run", bundles / "dims", *arguments, "--json")
    error = json.loads(out)["error"]
    assert code == 2
    assert error["field"] == field
    assert message in error["message"]


def test_a_file_of_inputs_that_is_not_there(bundles):
    code, _, err = relaxd("run", bundles / "dims", "--inputs", "absent.npz")
    assert (code, "there is no file absent.npz" in err, "Errno" in err) == (2, True, False)


def test_a_file_of_the_wrong_kind(bundles, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1))
    np.savez(tmp_path / "x.npz", x=np.zeros(1))
    for option, name in (("--inputs", "x.npy"), ("--input", "x.npz")):
        value = f"{tmp_path}/{name}" if option == "--inputs" else f"x={tmp_path}/{name}"
        code, _, err = relaxd("run", bundles / "dims", option, value)
        assert (code, "hint" in err) == (2, True)


def test_a_chosen_dim_that_the_given_inputs_do_not_have_is_refused(bundles, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 6), "float32"))
    arguments = ("--input", f"x={tmp_path}/x.npy")
    code, _, err = relaxd("run", bundles / "dims", *arguments, "--dim", "n=4")
    assert code == 2
    assert "dim 'n' is 4, but the given inputs have 3" in err
    assert relaxd("run", bundles / "dims", *arguments, "--dim", "n=3")[0] == 0


def test_a_wrong_input_names_its_axis(bundles, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((9, 2), "float32"))
    code, out, _ = relaxd("run", bundles / "dims", "--input", f"x={tmp_path}/x.npy", "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"], error["input"], error["axis"], error["value"]) == (
        2,
        "run.input",
        "x",
        0,
        9,
    )


def test_no_bundle(tmp_path):
    code, _, err = relaxd("run", tmp_path)
    assert code != 0
    assert "manifest.json" in err
