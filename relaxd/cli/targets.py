"""`relaxd targets`: the targets that can be compiled for."""

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import missing_lines, targets_table
from relaxd.client import Client, extras


def targets_command(
    server: declare.Server = None, token: declare.Token = None, json: Json = False
) -> None:
    """List the targets of a service, or of the compiler that is installed here."""
    if server:
        with Client(server, token=token) as client:
            known = client.targets()
    else:
        known = [
            target.to_list()
            for target in extras.load("compiler.targets", extra="compiler").registry()
        ]
    if json:
        print_json({"targets": known})
    else:
        stdout().print(targets_table(known))
        for line in missing_lines(known):
            stdout().print(line, soft_wrap=True)
