"""Cuts what computes on strings off an ONNX model, as steps that a loader runs around the
library.
"""
