"""Attention and what stands around it: masks, rotations, experts, layers with a state for each
token.
"""
