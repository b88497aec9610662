"""From a job's file to the model as the request wants it, and to its import."""
