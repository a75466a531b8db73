"""Provide benchmarks of collectives: each result next to its lower bound and other implementations, all from one run.

cases        measured collectives and sizes, and the minimum that a network link or the memory must move
rank         the program of Ripieno's ranks; programs/ has the peers' programs, with the same rules
baselines    the implementations and their launch; toolchain finds and compiles their requirements
comparison   alternating runs of all implementations compared with a limit, and the resulting figures
choice       every algorithm over a grid of sizes, and the cases with a bad default choice
session      the run of the command
results      its results and their output
"""
