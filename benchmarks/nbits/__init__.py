"""Matmuls with block-wise quantized weights, beside ONNX Runtime's."""
