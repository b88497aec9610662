"""Encoders in folders of Hugging Face's libraries and of sentence-transformers."""
