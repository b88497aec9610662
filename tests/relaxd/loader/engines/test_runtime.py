import re

import pytest

import relaxd
from relaxd.contract.bundle.manifest import FileEntry, LoadContract, Manifest
from relaxd.errors import BundleError, LoadContractError
from relaxd.loader.engines.runtime import runtime_libraries

INFER = """
def infer(path, **options):
    model = relaxd.load(path, **options)
    x, wide = np.ones((1, 2), "float32"), np.ones((1, 4), "float32")
    inputs = {"x": x, "wide": wide, "scale": np.float32(2)}
    return model.run(inputs)["y"].tolist()

def mapped():
    mapped = [line.split()[-1] for line in open("/proc/self/maps") if "libtvm_runtime.so" in line]
    return sorted({os.path.realpath(path) for path in mapped})
"""


def manifest(*names: str) -> Manifest:
    return Manifest(
        "m",
        (),
        (),
        (),
        {},
        LoadContract("x86_64"),
        {},
        {},
        {name: FileEntry("0", 0) for name in names},
    )


def test_the_core_comes_first():
    names = (
        "model.so",
        "libtvm_runtime_extra.so",
        "libtvm_runtime.so",
        "librelaxd_threads.so",
        "LICENSES",
    )
    assert runtime_libraries(manifest(*names)) == ["libtvm_runtime.so", "libtvm_runtime_extra.so"]


@pytest.mark.parametrize("missing", ["libtvm_runtime.so", "librelaxd_threads.so"])
def test_a_bundle_without_a_runtime(missing):
    names = {"model.so", "libtvm_runtime_extra.so", "libtvm_runtime.so", "librelaxd_threads.so"} - {
        missing
    }
    with pytest.raises(BundleError, match=re.escape(missing)):
        runtime_libraries(manifest(*names))


def test_a_second_runtime_version_is_refused(python, bundles, doctored):
    other = doctored(lambda manifest: manifest["load"]["runtime"].update({"apache-tvm": "0.99.0"}))
    code = """
import relaxd.errors
result = {"first": infer(sys.argv[1])}
try:
    infer(sys.argv[2])
except relaxd.errors.LoadContractError as error:
    result |= {"need": error.need, "hint": error.hint, "have": error.have}
result |= {"still": infer(sys.argv[1]), "mapped": len(mapped())}
print(json.dumps(result))
"""
    report = python(INFER + code, bundles / "dims", other)
    assert report["first"] == report["still"] == [[4, 4]]
    assert report["need"] == "0.99.0"
    assert report["have"].startswith("0.27")
    assert "different processes" in report["hint"]
    assert report["mapped"] == 1


@pytest.mark.parametrize(
    "order", ["import tvm; result = infer(sys.argv[1])", "result = infer(sys.argv[1]); import tvm"]
)
def test_tvm_in_the_same_process(python, bundles, order):
    """Either order: one runtime is mapped, and both work."""
    code = f"""
{order}
array = tvm.runtime.tensor(np.arange(3)).numpy().tolist()
print(json.dumps([result, array, infer(sys.argv[1]), len(mapped())]))
"""
    assert python(INFER + code, bundles / "dims") == [[[4, 4]], [0, 1, 2], [[4, 4]], 1]


def test_tvm_of_another_version_is_named(python, doctored):
    other = doctored(lambda manifest: manifest["load"]["runtime"].update({"apache-tvm": "0.99.0"}))
    code = """
import tvm, relaxd.errors
try:
    infer(sys.argv[1])
except relaxd.errors.LoadContractError as error:
    print(json.dumps([error.need, error.have == tvm.__version__]))
"""
    assert python(INFER + code, other) == ["0.99.0", True]


def test_a_pool_that_tvm_made_before_is_no_obstacle(python, bundles):
    code = """
import tvm
tvm.get_global_func("runtime.NumThreads")()
print(json.dumps([infer(sys.argv[1], threads=5), infer(sys.argv[1], threads=1)]))
"""
    assert python(INFER + code, bundles / "dims") == [[[4, 4]], [[4, 4]]]


def test_a_device_that_the_open_runtime_does_not_find(doctored, monkeypatch):
    monkeypatch.setattr("relaxd.loader.opening.check_contract", lambda manifest, host: None)
    bundle = doctored(lambda manifest: manifest["load"].update(device="ext_dev"))
    with pytest.raises(LoadContractError, match="a TVM runtime that finds no ext_dev device"):
        relaxd.load(bundle)


def test_a_bundle_that_replaces_another_at_its_path_runs_its_own_code(python, bundles, tmp_path):
    """Replace as `relaxd pull` and `relaxd compile -o` replace a folder under a server."""
    code = """
import shutil
first_from, second_from, folder = sys.argv[1:]
def answers(path):
    model = relaxd.load(path)
    inputs = {spec.name: np.ones([2] * len(spec.shape), spec.dtype) for spec in model.inputs}
    return model, lambda: [value.tolist() for value in model.run(inputs).values()]
shutil.copytree(first_from, folder)
old, run_old = answers(folder)
before = run_old()
shutil.rmtree(folder)
shutil.copytree(second_from, folder)
new, run_new = answers(folder)
expected, loaded_again = answers(second_from)[1](), answers(first_from)[1]()
print(json.dumps([before, run_old(), run_new(), expected, loaded_again]))
"""
    first, again, second, expected, loaded_again = python(
        code, bundles / "twice", bundles / "constant", tmp_path / "served"
    )
    assert first == again == loaded_again == [[2, 2]]
    assert second == expected == [[0, 1, 2, 3]]


def test_a_library_overwritten_in_position_does_not_change_what_runs(python, bundles, tmp_path):
    code = """
import shutil
shutil.copytree(sys.argv[1], sys.argv[2])
model = relaxd.load(sys.argv[2])
with open(os.path.join(sys.argv[2], "model.so"), "r+b") as file:
    file.write(bytes(os.path.getsize(file.fileno())))
print(json.dumps(model.run({"x": np.ones(2, "float32")})["y"].tolist()))
"""
    assert python(code, bundles / "twice", tmp_path / "served") == [2, 2]


def test_models_of_one_library_share_it(python, bundles):
    code = """
models, counts = [], []
for _ in range(3):
    models.append(relaxd.load(sys.argv[1]))
    with open("/proc/self/maps") as maps:
        counts.append(len({line.split()[4] for line in maps if "relaxd-model" in line}))
one = np.ones(1, "float32")
print(json.dumps([counts, [model.run({"x": one})["y"].tolist() for model in models]]))
"""
    counts, results = python(code, bundles / "twice")
    assert counts == [1, 1, 1]
    assert results == [[2]] * 3
