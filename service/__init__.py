"""The service: jobs over HTTP, compiled by workers."""
