"""The references of verify, each in a process of its own."""
