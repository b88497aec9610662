"""The library's side of verify, in a process of its own."""
