"""Tells whether this machine runs code for a target by itself."""

from compiler.targets import Target
from relaxd.errors import LoadContractError
from relaxd.loader.machine.check import check_machine
from relaxd.loader.machine.devices import probe
from relaxd.loader.machine.host import this_host


def cannot_run(target: Target) -> str | None:
    """Return why this machine's own processor cannot run a library for the target; None when it
    can.
    """
    if target.platform.archived:
        return f"a library for {target.name} runs in the program that links it"
    try:
        check_machine(target.load, this_host())
    except LoadContractError as error:
        return error.message
    return None


def in_software(target: Target) -> bool:
    """Tell whether the device that would run the target's kernels is this machine's processor."""
    driver = probe(target.device.name) if target.device else None
    return driver is not None and driver.software
