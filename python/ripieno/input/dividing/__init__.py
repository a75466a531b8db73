"""Files divided into even partitions, on nodes, with a partition file."""
