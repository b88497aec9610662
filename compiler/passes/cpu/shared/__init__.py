"""Parts of several kernel families: tiles, loop nests, reductions, tasks."""
