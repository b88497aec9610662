"""What the store holds for whom: holdings, tags, indexes, pins, attestations, collection."""
