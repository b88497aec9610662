"""The contract of all layers: dims, tensor shapes, requests, manifests, failures, states."""
