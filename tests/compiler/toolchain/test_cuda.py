import struct

import pytest

from compiler.errors import CodegenError, ToolchainMissing
from compiler.toolchain import cuda
from compiler.toolchain.nvrtc import find_nvrtc
from tests.support import cuobjdump

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
NVRTC = pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC's wheels are not installed")


def cubin(flags: int, abi: int, machine: int = 190) -> bytes:
    header = bytearray(64)
    header[:4], header[8] = b"\x7fELF", abi
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<I", header, 48, flags)
    return bytes(header)


@pytest.mark.parametrize(
    ("flags", "abi", "wanted"),
    [(0x06005A04, 8, "sm_90"), (0x06005004, 8, "sm_80"), (0x00590559, 7, "sm_89")],
)
def test_the_header_tells_the_architecture(flags, abi, wanted):
    assert cuda.architecture_of(cubin(flags, abi)) == wanted


@pytest.mark.parametrize(
    "content", [b"", b".version 8.0", cubin(0, 8, machine=62)], ids=["nothing", "ptx", "x86"]
)
def test_what_is_no_cubin_is_refused(content):
    with pytest.raises(CodegenError, match="no cubin"):
        cuda.architecture_of(content)


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "find_compiler", lambda: None)
    with pytest.raises(ToolchainMissing) as caught:
        cuda.compile_kernels(SOURCE, "sm_80")
    assert caught.value.code == "toolchain.no_cuda_compiler"
    assert "nvcc" in str(caught.value)


def test_code_for_another_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(
        cuda,
        "find_compiler",
        lambda: cuda.CudaCompiler("odd 1.0", lambda source, arch: cubin(0x06005A04, 8)),
    )
    with pytest.raises(CodegenError, match="made code for sm_90, not sm_80"):
        cuda.compile_kernels(SOURCE, "sm_80")


@NVRTC
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_makes_machine_code_for_the_architecture(architecture):
    content = find_nvrtc().compile(SOURCE, architecture)
    assert cuda.architecture_of(content) == architecture
    assert b"twice" in content


@NVRTC
@pytest.mark.skipif(
    cuobjdump.command() is None,
    reason="cuobjdump is not installed: pip install nvidia-cuda-cuobjdump",
)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90"])
def test_the_disassembler_finds_instructions_of_the_architecture_that_the_header_names(
    architecture,
):
    content = find_nvrtc().compile(SOURCE, architecture)
    assert cuobjdump.disassemble(content) == ({cuda.architecture_of(content)}, {"twice"})
    assert cuda.architecture_of(content) == architecture


@NVRTC
def test_nvrtc_reports_what_is_wrong_with_the_sources():
    with pytest.raises(CodegenError) as caught:
        find_nvrtc().compile("nonsense;", "sm_80")
    assert "nonsense" in caught.value.failure.details["output"]


@NVRTC
def test_half_precision_headers_are_found():
    source = (
        '#include <cuda_fp16.h>\nextern "C" __global__ void add(__half* x) { x[0] = '
        "__hadd(x[0], x[1]); }"
    )
    assert find_nvrtc().compile(source, "sm_80")
