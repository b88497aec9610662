"""Language models beside llama.cpp and onnxruntime-genai: prefill, decode, batches, memory."""
