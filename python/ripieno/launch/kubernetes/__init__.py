"""Provide manifests that run ranks in the pods of a Kubernetes Job."""
