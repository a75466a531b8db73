"""Divide files into even partitions on nodes, with a partition file."""
