"""The command line."""


def main() -> None:
    """Run the command that `sys.argv` names; exit codes as in `relaxd.cli.console.Exit`."""
    import sys

    from relaxd.cli.app import build_app

    build_app(*sys.argv[1:2])(prog_name="relaxd")
