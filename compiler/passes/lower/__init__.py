"""From scheduled loops to functions that code generators take."""
