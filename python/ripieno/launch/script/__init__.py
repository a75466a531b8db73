"""Scripts that a launcher starts once per rank: detection of the launcher, rendezvous, and reports of failures."""
