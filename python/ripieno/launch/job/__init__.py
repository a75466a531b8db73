"""Worker ranks that stand ready to run programs, here or elsewhere, and the conversation with them."""
