"""Names the first node of an ONNX model whose output departs from the reference, and reduces the
model to a few nodes that still show it.
"""
