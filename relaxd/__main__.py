"""`python -m relaxd`: the command line."""

from relaxd.cli import main

if __name__ == "__main__":
    main()
