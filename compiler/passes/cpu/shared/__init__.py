"""What several kernel families share: tiles, loop nests, reductions, tasks."""
