import pytest

from compiler import targets
from compiler.targets import TargetStatus, gpu
from compiler.toolchain import cuda


@pytest.mark.parametrize("target", gpu.ENTRIES, ids=lambda target: target.name)
def test_none_is_said_to_have_run_on_a_gpu(target):
    emulated = target.name in ("opencl", "opencl-mali", "opencl-adreno", "webgpu")
    assert target.status is (TargetStatus.EMULATED if emulated else TargetStatus.COMPILED_ONLY)
    assert target.device.name == target.load.device == target.kind


@pytest.mark.parametrize("sm", [80, 89, 90])
def test_cuda_states_architecture_and_driver(sm):
    load = targets.resolve(f"cuda-sm{sm}").load
    assert (load.device, load.sm, load.driver) == ("cuda", f"sm_{sm}", "13.0")


def test_the_compiler_that_is_found_is_named(monkeypatch):
    monkeypatch.setattr(
        cuda, "find_compiler", lambda: cuda.CudaCompiler("nvcc 13.0.88", lambda source, arch: b"")
    )
    assert targets.resolve("cuda-sm80").device.toolkit == "nvcc 13.0.88"
    assert targets.resolve("cuda-sm80").device.lacking is None


def test_what_is_lacking_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "find_compiler", lambda: None)
    assert targets.resolve("cuda-sm80").device.lacking == cuda.LACKING
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert "ROCm" in targets.resolve("rocm").device.lacking
    (tmp_path / "amdgcn" / "bitcode").mkdir(parents=True)
    assert targets.resolve("rocm").device.lacking is None
