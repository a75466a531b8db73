"""Measuring collectives: each figure beside the lower bound and beside the peers, all in one run.

cases        what is measured: collectives, sizes, and what a cable or the memory cannot but move
rank         the program that a rank of ours runs; programs/ has those of the peers, by the same rules
contestants  who takes part, and how each is started; toolchain finds and compiles what they need
contest      alternating runs of all contestants beside a limit, and the figures that come of it
choice       every algorithm over a grid of sizes, and where the default choice is not the best
session      what the command does, and found, what it tells
"""
