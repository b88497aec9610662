"""Libraries from objects, and the C header of a static archive."""
