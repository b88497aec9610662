import re

import pytest

import relaxd
from relaxd.contract.manifest import FileEntry, LoadContract, Manifest
from relaxd.errors import BundleError, LoadContractError
from relaxd.loader.runtime import runtime_libraries

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
    monkeypatch.setattr("relaxd.loader.model.check_contract", lambda manifest, host: None)
    bundle = doctored(lambda manifest: manifest["load"].update(device="ext_dev"))
    with pytest.raises(LoadContractError, match="a TVM runtime that finds no ext_dev device"):
        relaxd.load(bundle)
