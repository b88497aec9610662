"""Programs that write along one axis and read along another."""
