"""Jobs: submitted, inspected, watched, cancelled, and deleted with their tenant."""
