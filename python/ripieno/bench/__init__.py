"""Measuring collectives: each figure beside the lower bound and beside the peers, all in one run.

cases       what is measured: collectives, sizes, and how many bytes a cable or the memory must move at least
rank        the program that a rank of ours runs; programs/ has those of the peers, by the same rules
contestants who takes part, and how each is started
contest     alternating runs of all contestants, and what came of it
choice      every algorithm over a grid of sizes, and where the default choice is not the best
table, plot the figures for eyes
"""
