"""The runtimes that wheels bring: of this compiler's version, one for each target that needs it."""

from importlib import metadata

from compiler import runtimes, targets
from compiler.runtimes.pins import IMPORT_LIBRARY, PINS
from compiler.targets import Runtime
from relaxd.loader.machine.host import this_host


def test_the_pins_are_of_this_compiler() -> None:
    for pin in PINS:
        assert {wheel.package: wheel.version for wheel in pin.wheels} == {
            name: metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")
        }
        assert all(len(bytes.fromhex(wheel.sha256)) == 32 for wheel in pin.wheels)


def test_every_target_that_brings_a_runtime_has_a_pin_or_is_this_machine() -> None:
    for target in targets.registry():
        if target.platform.runtime is not Runtime.BUNDLED:
            continue
        own = (target.platform.os, target.arch) == ("linux", this_host().arch)
        assert own or runtimes.pin_of(target.platform), target.name


def test_a_pin_names_both_libraries_as_its_system_spells_them() -> None:
    suffixes = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}
    for pin in PINS:
        names = [name for name in pin.libraries if name != IMPORT_LIBRARY]
        assert all(name.endswith(suffixes[pin.os]) for name in names)
        assert (IMPORT_LIBRARY in pin.libraries) == (pin.os == "win32")
        assert len(names) == 3
