"""Pages and charts of measurements."""
