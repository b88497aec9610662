"""Files of weights that nobody has vouched for: safetensors and GGUF."""
