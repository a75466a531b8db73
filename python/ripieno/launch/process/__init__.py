"""Processes of this machine: start them, talk with them, end them."""
