"""Benchmarks of language models' completions: to the reference's words, soon behind a known
beginning, and to many clients at once.
"""
