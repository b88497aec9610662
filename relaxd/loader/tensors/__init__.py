"""Arrays and tensors of callers: converted, borrowed, placed on devices, checked against the
signature.
"""
