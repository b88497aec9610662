"""Side-by-side measurements against other engines; nothing here is part of the tests."""
