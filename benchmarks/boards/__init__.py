"""Benchmarks of libraries for micro-controllers on the boards that qemu emulates."""
