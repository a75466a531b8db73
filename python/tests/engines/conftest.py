"""What tests on real engines share."""
