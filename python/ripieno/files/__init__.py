"""Files by path or URL: sources that are read, results that are there as a whole or not at all."""
