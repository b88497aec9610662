"""Explains builds: one report from a bundle's documents, what it means, and what two builds differ
in.
"""
