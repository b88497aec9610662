"""Kubernetes manifests of the scaled form: checked against their schemas and their images."""
