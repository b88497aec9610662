"""Parts that HTTP servers share: the service's API, and the endpoint of a language model."""
