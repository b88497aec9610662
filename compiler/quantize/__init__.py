"""Quantization of what the model itself does not: the plan, measurements that decide it, the ONNX
graphs that it rewrites, and the references that judge the result.
"""
