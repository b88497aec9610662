"""The linter of the project's language: terms and names as docs/glossary.md has them."""
