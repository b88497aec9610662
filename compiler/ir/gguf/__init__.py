"""Language models in GGUF files: their metadata, quantized blocks, and the graph of a decoder."""
