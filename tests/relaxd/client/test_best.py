import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from relaxd.client import Client, PullError
from relaxd.client.best import best_of
from relaxd.contract.bundle.manifest import LoadContract, Manifest
from relaxd.loader.machine.devices import Driver
from relaxd.loader.machine.host import Host, this_host
from tests.relaxd.client.test_pull import bundle, content, index
from tests.service.live import Live

HOST = Host("x86_64", "linux", frozenset({"sse4_2", "avx2", "fma"}), "2.36")
V2, V3, V4 = ("sse4_2",), ("avx2", "fma", "sse4_2"), ("avx2", "avx512f", "fma", "sse4_2")


def manifest(
    isa: tuple[str, ...] = (), *, arch: str = "x86_64", status: str = "executed", **load: Any
) -> Manifest:
    return Manifest(
        "m", (), (), (), {"status": status}, LoadContract(arch, isa=isa, **load), {}, {}
    )


def test_the_one_that_uses_most_of_the_processor() -> None:
    offered = {
        "v2": manifest(V2),
        "v4": manifest(V4),
        "v3": manifest(V3),
        "arm": manifest(arch="aarch64"),
    }
    assert best_of(offered, HOST) == "v3"
    assert best_of(offered, dataclasses.replace(HOST, isa=frozenset(V4))) == "v4"
    assert best_of(offered, dataclasses.replace(HOST, isa=frozenset(V2))) == "v2"


def test_among_equals_the_better_tested() -> None:
    assert best_of({"a": manifest(V3, status="compiled_only"), "b": manifest(V3)}, HOST) == "b"


def test_where_nothing_runs_each_is_told_of() -> None:
    with pytest.raises(PullError) as caught:
        best_of({"v4": manifest(V4), "arm": manifest(arch="aarch64")}, HOST)
    assert "v4: instruction set" in caught.value.message
    assert "arm: architecture" in caught.value.message
    assert "avx512f" in caught.value.message


def test_pulled_from_an_index(api: Live, tmp_path: Path) -> None:
    here = this_host()
    files = {
        "here": json.dumps(manifest(arch=here.arch, status="emulated").to_json()).encode(),
        "elsewhere": json.dumps(manifest(arch="vax").to_json()).encode(),
    }
    both = index(
        api, {target: bundle(api, {"manifest.json": data}) for target, data in files.items()}
    )
    with Client(api.url) as client:
        client.pull(both, tmp_path / "out", best=True)
        assert content(tmp_path / "out") == {"manifest.json": files["here"]}
        with pytest.raises(PullError, match="vax"):
            client.pull(
                index(api, {"elsewhere": bundle(api, {"manifest.json": files["elsewhere"]})}),
                tmp_path / "none",
                best=True,
            )


def test_a_gpu_comes_first_and_a_processor_that_poses_as_one_last() -> None:
    offered = {"cpu": manifest(V2), "opencl": manifest(V2, device="opencl")}
    assert best_of(offered, HOST, lambda device: Driver("", ((0, 0),))) == "opencl"
    assert best_of(offered, HOST, lambda device: Driver("", ((0, 0),), software=True)) == "cpu"
    assert best_of(offered, HOST, lambda device: None) == "cpu"
    assert (
        best_of(
            {"opencl": offered["opencl"]}, HOST, lambda device: Driver("", ((0, 0),), software=True)
        )
        == "opencl"
    )
