import struct

import pytest
import tvm

from compiler.codegen.cubin import Kernels, replace_sources
from compiler.errors import CodegenError
from compiler.passes.gpu.fallback import bind_nests
from compiler.passes.gpu.trial import sources_only
from tests.compiler.passes.gpu.programs import CUDA, twice


@pytest.fixture(scope="module")
def built():
    with sources_only():
        return tvm.tirx.build(bind_nests(twice(), 64).with_attr("global_symbol", "twice"), CUDA)


def blob_of(module):
    return tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()


def test_machine_code_replaces_sources(built):
    source, before = str(built.imports[0].inspect_source()), blob_of(built)
    after = replace_sources(before, Kernels(source, b"machine code"))
    assert struct.unpack_from("<Q", after)[0] == len(after) - 8
    assert source.encode() not in after
    assert after.count(b"machine code") == 1
    assert after.count(b"\x05\0\0\0\0\0\0\0cubin") == 1
    assert after.count(b"twice_kernel") == before.count(b"twice_kernel") - source.count(
        "twice_kernel"
    )


def test_the_lengths_lead_from_one_part_to_the_next(built):
    after = replace_sources(
        blob_of(built), Kernels(str(built.imports[0].inspect_source()), b"machine code")
    )
    kind = after.index(struct.pack("<Q", 4) + b"cuda")
    (size,) = struct.unpack_from("<Q", after, kind + 12)
    assert after[kind + 20 : kind + 20 + size].endswith(struct.pack("<Q", 12) + b"machine code")


def test_another_layout_is_refused(built):
    with pytest.raises(CodegenError, match="another way") as caught:
        replace_sources(blob_of(built), Kernels("other sources", b"machine code"))
    assert caught.value.code == "codegen.embedding"
