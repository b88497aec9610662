"""Load on the scaled form of the service: submits at a fixed rate, and cache hits."""
