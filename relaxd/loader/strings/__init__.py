"""The steps on strings that a loader runs before and after a library."""
