"""The documentation as a website, with the reference pages that code generates."""
