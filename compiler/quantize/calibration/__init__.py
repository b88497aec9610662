"""Quantizes weights by what samples make of the model, so that outputs change less."""
