"""Passes that choose how tensors lie in memory: channels last, rows as images, views."""
