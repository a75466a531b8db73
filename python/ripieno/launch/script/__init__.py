"""Provide scripts that a launcher starts once per rank: launcher detection, rendezvous, and failure reports."""
