"""Processes of this machine: start, communication and end."""
