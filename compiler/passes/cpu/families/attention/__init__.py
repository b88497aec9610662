"""softmax(q @ k) @ v with scores that stay in the cache."""
