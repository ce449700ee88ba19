"""The runner that starts a Kubernetes Job for each attempt."""
