"""Compares outputs with their reference, and judges what departs by the reference's own
uncertainty.
"""
