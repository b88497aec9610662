"""Layers whose state goes from step to step, as tensor programs written as loops: importers call
these programs, and passes leave them as they are.
"""
