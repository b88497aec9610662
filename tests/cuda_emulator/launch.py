"""Launches one kernel on the emulator, as a process of its own: `python launch.py
CUBIN KERNEL GRID BLOCK N MEMORY` prints the status and the N floats that
its one argument points to, which hold 0, 1, 2 ... before.

GRID: as in `1,2,1`; MEMORY: `device`, or `host` for a pointer that no kernel may have.
"""

import ctypes
import json
import sys
from pathlib import Path

_TO_DEVICE, _TO_HOST = 1, 2


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


def main(cubin: str, kernel: str, grid: str, block: str, count: str, memory: str) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    module, function, pointer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), Path(cubin).read_bytes()) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()) == 0
    values = (ctypes.c_float * int(count))(*range(int(count)))
    size = ctypes.c_size_t(ctypes.sizeof(values))
    assert driver.cudaMalloc(ctypes.byref(pointer), size) == 0
    assert driver.cudaMemcpyAsync(pointer, values, size, _TO_DEVICE, None) == 0
    inputs_given = pointer if memory == "device" else ctypes.c_void_p(ctypes.addressof(values))
    asked = _Configuration(_three(grid), _three(block))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(inputs_given))
    status = driver.cuLaunchKernelEx(ctypes.byref(asked), function, arguments, None)
    assert driver.cudaMemcpyAsync(values, pointer, size, _TO_HOST, None) == 0
    print(json.dumps({"status": status, "values": list(values)}))


def _three(text: str) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*map(int, text.split(",")))


if __name__ == "__main__":
    main(*sys.argv[1:])
