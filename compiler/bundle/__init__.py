"""The files of a bundle."""
