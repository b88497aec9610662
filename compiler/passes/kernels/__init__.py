"""Kernel families: each turns the stages of a tensor program into loops for one kind of machine."""
