"""Runs a command on a kernel that lacks layers of the sandbox, as containers and old kernels do:
`python -m tests.compiler.isolation.refusing namespaces,landlock COMMAND...`.
"""

import errno
import os
import sys

from compiler.isolation.linux import kernel, privileges, seccomp
from compiler.isolation.linux.syscalls import TABLE, Refused

LANDLOCK = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
REFUSALS = {
    # What Docker's default profile answers.
    "namespaces": Refused(errno.EPERM, ("unshare",)),
    "landlock": Refused(errno.ENOSYS, LANDLOCK),
}


def command(layers: str, *arguments: str) -> list[str]:
    """The command line that runs Python with the arguments where the layers are refused."""
    module = ["-m", "tests.compiler.isolation.refusing", layers] if layers else []
    return [sys.executable, *module, *([sys.executable] if layers else []), *arguments]


def main() -> None:
    machine = kernel.machine()
    assert machine is not None
    TABLE.update({name: (444 + i, 444 + i) for i, name in enumerate(LANDLOCK)})
    TABLE["prctl"] = (157, 167)
    privileges.forgo_privileges()
    layers = sys.argv[1].split(",")
    refused = [REFUSALS[layer] for layer in layers if layer in REFUSALS]
    checks = [seccomp.Check("prctl", 0, (22,))] if "seccomp" in layers else []
    seccomp.install(seccomp.program(machine, refused, checks))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
