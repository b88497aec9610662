"""Low-rank adapters as files: PEFT's folders and llama.cpp's GGUF files."""
