"""How long builds take."""
