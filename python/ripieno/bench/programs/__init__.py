"""Programs that peers run as ranks, and what all of them share."""
