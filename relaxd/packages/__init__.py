"""Packages of a bundle in the form that an ecosystem installs."""
