"""Language models in GGUF files: their metadata, blocks of few bits, and the graph of a decoder."""
