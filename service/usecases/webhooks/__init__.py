"""Webhooks: URLs that are told of a tenant's events, and the deliveries to them."""
