"""The processes that a command line starts, and what keeps them alive."""
