"""Relax and tensor-program passes that make a module fast on its target."""
