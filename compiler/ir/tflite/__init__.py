"""TFLite files to ONNX models that compute the same, to the bit of its reference kernels in
integers.
"""
