"""A page that pulls a bundle from a service and runs it, in headless Chromium."""
