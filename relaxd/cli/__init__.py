"""The command line."""


def main() -> None:
    """Run the command that `sys.argv` names; exit codes as in `relaxd.cli.console.Exit`."""
    from relaxd.cli.app import app

    app(prog_name="relaxd")
