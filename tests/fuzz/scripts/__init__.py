"""Random TorchScript programs, compared with torch."""
