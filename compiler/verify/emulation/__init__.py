"""Runs bundles for other processors under qemu's user mode."""
