"""The registry: names of models, versions, and aliases that move between them."""
