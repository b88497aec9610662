"""Matmuls by matrices of few bits, beside ONNX Runtime's."""
