"""What a format of files needs to be cut between records and read in splits, a module for each."""
