"""The Kubernetes manifests' own pods, run by podman on one machine."""
