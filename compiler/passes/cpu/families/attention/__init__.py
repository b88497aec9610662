"""softmax(q @ k) @ v with the scores kept in the cache."""
