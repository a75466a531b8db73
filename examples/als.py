"""Recommendations from ratings that two workers share: `python examples/als.py`."""

import numpy as np
import ripieno as rp

USER_COUNT, TITLES = 300, [f"{kind} {number}" for kind in ("comedy", "drama", "western") for number in range(1, 9)]


def ratings(random: np.random.Generator) -> tuple[list[int], list[str], list[float]]:
    """Return ratings with user ids from 1000 on. Each user prefers one genre and rates a third of all films."""
    users, items, values = [], [], []
    for user in range(1000, 1000 + USER_COUNT):
        for item, title in enumerate(TITLES):
            if random.random() < 1 / 3:
                users.append(user)
                items.append(title)
                values.append(float(np.clip((4.5 if item // 8 == user % 3 else 2.0) + random.normal(scale=0.5), 1, 5)))
    return users, items, values


def main() -> None:
    random = np.random.default_rng(0)
    users, items, values = ratings(random)
    is_test = random.random(len(values)) < 0.1
    train, test = (
        tuple(np.array(column)[chosen] for column in (users, items, values)) for chosen in (~is_test, is_test)
    )
    model = rp.ALS(rank=4, reg=0.1, workers=2, threads=1, random_state=0).fit(train)
    print(f"{model.report_.rating_count} ratings, test error {model.rmse(test):.2f}")
    for user in (1000, 1001, 1002):
        titles, scores = model.recommend(user, 3)
        recommended = ", ".join(f"{title} {score:.1f}" for title, score in zip(titles, scores, strict=True))
        print(f"user {user}: {recommended}")
    for exchange in model.report_.exchanges:
        print(f"factors of {exchange}")


if __name__ == "__main__":
    main()
