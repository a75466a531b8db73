"""Principal components of rows, and a regression on the components, by two workers: `python examples/pca_ridge.py`."""

import numpy as np
import ripieno as rp

ROW_COUNT, COLUMN_COUNT = 5000, 30


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return rows that vary mainly along three directions, and a target that follows the first direction."""
    random = np.random.default_rng(0)
    along = random.normal(size=(ROW_COUNT, 3)) * [5, 3, 2]
    noise = 0.1 * random.normal(size=(ROW_COUNT, COLUMN_COUNT))
    return along @ random.normal(size=(3, COLUMN_COUNT)) + noise, 2 * along[:, 0] + random.normal(size=ROW_COUNT)


def main() -> None:
    X, y = rows()
    with rp.launch(workers=2) as job:
        axes = rp.PCA(n_components=3, engine=job).fit(X)
        model = rp.Ridge(alpha=1.0, engine=job).fit(axes.transform(X), y)
    print(f"3 axes have {axes.explained_variance_ratio_.sum():.1%} of the variance of {COLUMN_COUNT} columns")
    print(f"a regression on them explains {model.score(axes.transform(X), y):.1%} of the target's")
    for step in axes.report_.iterations:
        print(f"{step.measures['stage']:>16}: {step.seconds * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
