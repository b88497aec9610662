"""Encoders of text as ONNX models, whatever format describes them."""
