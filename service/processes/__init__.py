"""The processes that a command line starts, and their supervisor."""
