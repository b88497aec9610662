"""The store by tenant: holdings, tags, indexes, pins, attestations, collection."""
