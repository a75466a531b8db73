"""What works here, and in an engine, and what to do about the rest."""
