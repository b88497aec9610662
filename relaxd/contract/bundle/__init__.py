"""The documents of a bundle: manifest, kernels, numerics, profile, report."""
