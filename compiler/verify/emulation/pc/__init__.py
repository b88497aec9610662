"""Runs programs for Linux on an emulated PC: Bochs, and a kernel of our own for one program."""
