"""Layers of neural networks: convolutions, pooling, norms, recurrent layers, sampling, losses."""
