"""Provide splits of input files: parts that workers read on their own, cut between records, preferably read locally.

    splits = ripieno.input.splits("corpus/*.txt", count=64)
    for split in ripieno.input.share(splits, comm):      # this rank's
        for text in split.blocks():                      # whole lines
            ...

`divide` writes even partitions of files, each on several nodes, and a partition file, which `open_partitions` reads.

Source: Zhang, Qiu et al., social image clustering with Twister, section 3.2.
"""

from ripieno.input.aggregating import aggregate
from ripieno.input.assigning.assignment import Assignment, assign, share
from ripieno.input.columns import TableFiles
from ripieno.input.cutting import splits
from ripieno.input.dividing.divide import divide
from ripieno.input.matrix import BinaryFiles
from ripieno.input.partitions import open_partitions
from ripieno.input.reading import read
from ripieno.input.split import Format, Split

__all__ = [
    "Assignment",
    "BinaryFiles",
    "Format",
    "Split",
    "TableFiles",
    "aggregate",
    "assign",
    "divide",
    "open_partitions",
    "read",
    "share",
    "splits",
]
