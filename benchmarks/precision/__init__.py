"""Quantized models beside float32 and beside the peers' own."""
