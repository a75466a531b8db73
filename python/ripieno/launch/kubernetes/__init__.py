"""Ranks in the pods of a Kubernetes Job: the manifest."""
