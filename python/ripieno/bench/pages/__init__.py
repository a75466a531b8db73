"""Provide pages and charts of measurements."""
