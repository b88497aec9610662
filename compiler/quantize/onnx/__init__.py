"""ONNX models whose matmuls, convolutions and caches are quantized as a library quantizes them."""
