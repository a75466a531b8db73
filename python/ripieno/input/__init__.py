"""Input in splits: parts of files that workers read by themselves, cut between records, each where its file lies.

    splits = ripieno.input.splits("corpus/*.txt", count=64)
    for split in ripieno.input.share(splits, comm):      # this rank's
        for text in split.blocks():                      # whole lines
            ...

Source: Zhang and Qiu, "Social image clustering with Twister", section 3.2.
"""

from ripieno.input.assignment import Assignment, assign, share
from ripieno.input.split import Format, Split, splits

__all__ = ["Assignment", "Format", "Split", "assign", "share", "splits"]
