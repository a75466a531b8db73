"""Logistic regression on sparse rows with two workers: `python examples/logistic.py`."""

import numpy as np
import ripieno as rp
from scipy.sparse import csr_matrix, random_array

ROW_COUNT, COLUMN_COUNT = 20_000, 300


def rows() -> tuple[csr_matrix, np.ndarray]:
    """Return rows of few entries, and their sides of a noisy plane."""
    random = np.random.default_rng(0)
    X = csr_matrix(random_array((ROW_COUNT, COLUMN_COUNT), density=0.05, rng=random))
    return X, X @ random.normal(size=COLUMN_COUNT) + 0.5 * random.normal(size=ROW_COUNT) > 0


def main() -> None:
    X, y = rows()
    with rp.launch(workers=2) as job:
        for solver in ("newton-cg", "lbfgs", "gd"):
            model = rp.LogisticRegression(solver=solver, max_iter=1000, engine=job).fit(X, y)
            steps = model.report_.iterations
            waiting = sum(max(step.communication_s) for step in steps) / model.report_.iterate_s
            print(
                f"{solver:>9}: objective {model.objective_:.4f} after {model.n_iter_} iterations, "
                f"{1e3 * model.report_.iterate_s:.0f} ms, at most {waiting:.0%} of it communication"
            )


if __name__ == "__main__":
    main()
