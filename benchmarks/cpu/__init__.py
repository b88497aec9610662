"""Latency of every engine on the CPU, side by side in one run."""
