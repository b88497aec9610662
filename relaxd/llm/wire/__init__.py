"""OpenAI's documents: what a request asks for, and how answers and errors look."""
