"""Assign splits to ranks with a maximum flow, so that reading is local and balanced."""
