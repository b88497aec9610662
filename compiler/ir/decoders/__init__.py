"""Decoders that a file describes and does not hold as a graph: what describes one, and its ONNX."""
