"""The contract every layer shares: dims, tensor shapes, requests, manifests, failures and
states.
"""
