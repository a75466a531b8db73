"""Scripts that a launcher starts once per rank: what it says of them, where they meet, how their ends are told."""
