"""Runs bundles for other processors under qemu."""
