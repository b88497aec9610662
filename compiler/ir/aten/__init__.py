"""Operators of torch, as TorchScript and `.pt2` call them: one table, views and writes in place,
promotion of dtypes.
"""
