"""In-place KV caches in each type that they are stored in."""
