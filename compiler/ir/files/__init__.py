"""Model files that nobody has vouched for: their format, texts, and the order of their nodes."""
