"""Who reads what: a maximum flow, so that reading is local and even."""
