"""The machine that builds: whether it compiles for a target, emulates it, runs its code."""
