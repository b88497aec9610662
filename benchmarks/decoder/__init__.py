"""Steps of decoders with caches, beside ONNX Runtime."""
