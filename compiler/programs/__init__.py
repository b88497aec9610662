"""Tensor programs written as loops, for layers that are no expression of operators: importers call
them, and passes leave them as they are.
"""
