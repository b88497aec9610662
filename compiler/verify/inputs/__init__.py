"""The points and inputs at which a library is tried."""
