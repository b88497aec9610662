"""Where a bundle came from: signed statements, the keys that are trusted, a bill of materials."""
