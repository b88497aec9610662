"""Every attack is denied, and still is where the kernel lacks any one layer of the sandbox."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.level import CONFINING, Layer, level_of
from tests.compiler.isolation.attacks import ATTACKS, NARROWED, SECRET
from tests.compiler.isolation.attacks.system import SURFACE
from tests.compiler.isolation.attempts import (
    KERNELS,
    WITHOUT_CONTROL,
    attempt,
    failed_controls,
    reset,
    stage,
)

pytestmark = pytest.mark.slow

ONLY_SECCOMP = {f"reach_{name}" for name, *_ in SURFACE}
SHARED_BY_FILES = {"run_a_program_of_its_own": "landlock"}
"""Denied by one layer alone, which is named: it gains nothing that Python has not."""


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with stage(tmp_path_factory.mktemp("attacks")) as spec:
        yield spec


@pytest.fixture(scope="session")
def attacks(
    scene: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The outcomes of every attack, by the layers that the kernel lacks."""
    results: dict[str, dict[str, Any]] = {}
    for lacking in KERNELS:
        results[lacking] = attempt(lacking, reset(scene, tmp_path_factory.mktemp("build")))
        if not {layer.value for layer in CONFINING} <= set(results[""]["layers"]):
            pytest.skip(f"this kernel has {', '.join(results['']['layers'])} alone")
        outside = Path(scene["outside"])
        results[lacking]["left"] = {
            path.name: path.read_bytes() for path in outside.iterdir() if path.is_file()
        }
    return results


@pytest.mark.parametrize("lacking", KERNELS)
def test_the_kernel_has_the_layers_but_the_lacking_one(
    attacks: dict[str, Any], lacking: str
) -> None:
    layers = {Layer(name) for name in attacks[lacking]["layers"]}
    expected = {layer for layer in CONFINING if not layer.value.startswith(lacking or "-")}
    assert layers - {Layer.GROUP} == expected
    assert level_of(layers) == attacks[lacking]["level"]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("lacking", KERNELS)
def test_it_is_denied(attacks: dict[str, Any], lacking: str, attack: str) -> None:
    if lacking == "seccomp" and attack in ONLY_SECCOMP:
        pytest.skip("a way into the kernel that seccomp alone closes, and that leads to no file")
    if SHARED_BY_FILES.get(attack) == lacking and lacking:
        pytest.skip("one layer's alone")
    assert attacks[lacking]["outcomes"][attack] != "succeeded"


def test_attacks_succeed_where_every_layer_is_lacking(
    scene: dict[str, Any], tmp_path: Path, attacks: dict[str, Any]
) -> None:
    controls = [name for name in ATTACKS if name not in WITHOUT_CONTROL | ONLY_SECCOMP]
    assert failed_controls(scene, tmp_path, controls) == {}
    assert failed_controls(scene, tmp_path, NARROWED, narrowed=True) == {}


@pytest.mark.parametrize("lacking", KERNELS)
def test_the_files_of_others_are_as_they_were(attacks: dict[str, Any], lacking: str) -> None:
    assert attacks[lacking]["left"] == {"secret": SECRET, "record": b"record"}
