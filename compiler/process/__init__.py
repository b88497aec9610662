"""The compile process: one job from its standard input to its messages."""
