"""Builds the two images and runs them as the compose file says, without a container engine."""
