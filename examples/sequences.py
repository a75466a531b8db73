"""A map of sequences by their edit distances, by two workers: `python examples/sequences.py [FASTA]`."""

import sys

import numpy as np
import ripieno as rp

LETTERS = np.array(list("ACGT"))
random = np.random.default_rng(0)


def mutated(parent: np.ndarray, share: float) -> np.ndarray:
    """Return a mutated copy of a sequence: some letters are changed, some are deleted, some are duplicated."""
    child = np.where(random.random(len(parent)) < share, random.choice(LETTERS, len(parent)), parent)
    return child.repeat(random.choice([0, 1, 2], len(child), p=[share / 4, 1 - share / 2, share / 4]))


def tree(families: int, members: int) -> list[str]:
    """Return the sequences of families with a common ancestor, one family after the other."""
    root = random.choice(LETTERS, 300)
    ancestors = [mutated(root, 0.4) for _ in range(families)]
    return ["".join(mutated(ancestor, 0.1)) for ancestor in ancestors for _ in range(members)]


def main() -> None:
    sequences = sys.argv[1] if len(sys.argv) > 1 else tree(families=5, members=30)
    model = rp.MDS(3, metric="levenshtein", method="da-smacof", workers=2, threads=1, random_state=0).fit(sequences)
    print(f"{len(model.embedding_)} sequences, normalized stress {model.normalized_stress_:.4f}")
    found = rp.KMeans(5, random_state=0).fit(model.embedding_).labels_
    print("clusters of the map, in the order of the sequences:", *found)


if __name__ == "__main__":
    main()
