"""Positions of cities from their distances, with missing values, by two workers: `python examples/mds.py`."""

import numpy as np
import ripieno as rp

CITIES = {
    "Lisbon": (-9.1, 38.7),
    "Madrid": (-3.7, 40.4),
    "Paris": (2.4, 48.9),
    "Rome": (12.5, 41.9),
    "Berlin": (13.4, 52.5),
    "Vienna": (16.4, 48.2),
    "Athens": (23.7, 38.0),
    "Oslo": (10.8, 59.9),
}


def main() -> None:
    at = np.array(list(CITIES.values())) * [70, 111]
    kilometers = np.rint(np.linalg.norm(at[:, None] - at, axis=2)).astype(np.int16)
    known = np.ones(kilometers.shape)
    known[0, 7] = known[7, 0] = known[2, 6] = known[6, 2] = 0

    model = rp.MDS(2, method="da-smacof", weights=known, workers=2, threads=1, random_state=0).fit(kilometers)
    found = np.linalg.norm(model.embedding_[:, None] - model.embedding_, axis=2)
    print(f"normalized stress {model.normalized_stress_:.4f} after {model.n_iter_} iterations")
    for a, b in ((0, 7), (2, 6)):
        names = list(CITIES)
        print(f"{names[a]} to {names[b]}: {found[a, b]:.0f} km, in truth {kilometers[a, b]} km")
    prague = np.array([[np.linalg.norm(np.array([14.4, 50.1]) * [70, 111] - city) for city in at]])
    nearest = np.linalg.norm(model.embedding_ - model.interpolate(prague), axis=1).argmin()
    print(f"Prague lies next to {list(CITIES)[nearest]}")


if __name__ == "__main__":
    main()
