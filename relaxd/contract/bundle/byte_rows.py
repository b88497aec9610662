"""Rows of caches whose numbers are rounded to bytes (`CacheForm.INT8`).

A row of n float32 is n signed bytes and behind them a float32 in four more, lowest byte first: the
scale, by which a byte is multiplied to become a number again. The scale makes the greatest
magnitude of the row MOST; the others go to the nearest whole number, the even one of two.
A row whose greatest magnitude is below LEAST counts as zeros: its bytes and its scale are 0. A row
with an infinity or NaN becomes NaN as a whole: its bytes are 0 and its scale is NaN.
"""

SCALE_BYTES = 4
"""What a row is longer by than its numbers."""

MOST = 127.0
LEAST = 2.0**-120
"""The inverse of a smaller magnitude may be infinite, and its scale subnormal."""
