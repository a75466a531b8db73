"""Provide the start, the communication and the end of processes on this machine."""
