"""The emulator finds what it is there to find, and takes what is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda_emulator import machine
from tests.cuda_emulator.machine import FALLING, RISING

OK, INVALID, LAUNCH_FAILED = 0, 1, 719
_LAUNCH = Path(__file__).with_name("launch.py")

SOURCE = """
extern "C" __global__ void __launch_bounds__(64) turned(float* __restrict__ x) {
  __shared__ alignas(64) float kept[64];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[63 - threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(64) turned_too_early(float* __restrict__ x) {
  __shared__ alignas(64) float kept[64];
  kept[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = kept[63 - threadIdx.x];
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(64) two_barriers(float* __restrict__ x) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(64) summed(float* __restrict__ x) {
  float sum = x[threadIdx.x];
  unsigned int mask = __activemask();
  for (int step = 16; step > 0; step /= 2) {
    sum = sum + __shfl_down_sync(mask, sum, step, 32);
  }
  x[threadIdx.x] = __shfl_sync(mask, sum, 0, 32);
}

extern "C" __global__ void __launch_bounds__(64) shuffled_by_some(float* __restrict__ x) {
  if (threadIdx.x < 16) {
    x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1, 32);
  }
}

extern "C" __global__ void __launch_bounds__(64) vectors(float* __restrict__ x) {
  *(float4*)(x + (threadIdx.x * 4)) = make_float4(1, 2, 3, 4);
}

extern "C" __global__ void __launch_bounds__(64) vectors_off_by_one(float* __restrict__ x) {
  *(float4*)(x + ((threadIdx.x * 4) + 1)) = make_float4(1, 2, 3, 4);
}

extern "C" __global__ void __launch_bounds__(64) numbered(float* __restrict__ x) {
  x[blockIdx.y * 64 + threadIdx.x] = blockIdx.y * 100 + threadIdx.x;
}
"""


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    variables = machine.environment(folder)
    (folder / "kernels.cu").write_text(SOURCE)
    command = [folder / "nvcc", "--cubin", "-arch=sm_90", "-o", "kernels.cubin", "kernels.cu"]
    subprocess.run(command, cwd=folder, env=variables, check=True)

    def run(kernel, *, grid="1,1,1", block="64,1,1", count=128, memory="device", order=RISING):
        """Status, values and what the emulator says."""
        command = [sys.executable, _LAUNCH, folder / "kernels.cubin"]
        done = subprocess.run(
            [*command, kernel, grid, block, str(count), memory],
            capture_output=True,
            text=True,
            env=machine.environment(folder, order),
            check=True,
        )
        reported = json.loads(done.stdout)
        return reported["status"], reported["values"], done.stderr

    return run


@pytest.mark.parametrize("order", [RISING, FALLING, 7])
def test_barriers_hold_in_every_order(launch, order):
    status, values, _ = launch("turned", order=order)
    assert status == OK
    assert values[:64] == [63 - i for i in range(64)]


def test_a_barrier_too_late_shows_as_numbers_that_the_order_changes(launch):
    rising, falling = (launch("turned_too_early", order=order)[1] for order in (RISING, FALLING))
    # What no thread has written yet is not a number.
    assert str(rising) != str(falling)
    assert "nan" in str(rising)


def test_barriers_of_different_lines_are_told_apart(launch):
    status, _, complaints = launch("two_barriers")
    assert status == LAUNCH_FAILED
    assert "two_barriers: threads wait at barriers of lines" in complaints


@pytest.mark.parametrize("order", [RISING, FALLING, 7])
def test_warps_exchange_values(launch, order):
    status, values, _ = launch("summed", order=order)
    assert status == OK
    assert values[:64] == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


def test_a_mask_of_lanes_that_do_not_come_is_a_fault(launch):
    status, _, complaints = launch("shuffled_by_some")
    assert status == LAUNCH_FAILED
    assert "shuffles under mask ffffffff" in complaints


def test_vectors_must_be_aligned(launch):
    assert launch("vectors", block="32,1,1")[0] == OK
    status, _, complaints = launch("vectors_off_by_one", block="31,1,1")
    assert status == LAUNCH_FAILED
    assert "vectors_off_by_one: thread 0 loads or stores a vector at an address" in complaints


def test_blocks_are_numbered(launch):
    status, values, _ = launch("numbered", grid="1,2,1")
    assert status == OK
    assert values == [*range(64), *range(100, 164)]


@pytest.mark.parametrize(
    ("grid", "block"), [("0,1,1", "64,1,1"), ("1,65536,1", "64,1,1"), ("1,1,1", "65,1,1")]
)
def test_grids_and_blocks_that_no_device_takes_are_refused(launch, grid, block):
    status, values, complaints = launch("turned", grid=grid, block=block)
    assert status == INVALID
    assert values == list(range(128))
    assert "more, or less, than can be launched" in complaints


def test_kernels_get_no_pointer_of_the_host(launch):
    status, _, complaints = launch("turned", memory="host")
    assert status == LAUNCH_FAILED
    assert "argument 0 of turned is no device pointer" in complaints
