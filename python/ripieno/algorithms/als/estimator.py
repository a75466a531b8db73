"""Alternating least squares as an estimator, on one machine's cores or many workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ripieno import log
from ripieno._checks import check_count
from ripieno.algorithms.als import program
from ripieno.algorithms.als.exchange import FactorExchange
from ripieno.algorithms.als.parameters import ALSParameters
from ripieno.algorithms.als.program import ALSOptions, ALSPart
from ripieno.algorithms.als.table import (
    NumberedRatings,
    OwnRatings,
    RatingFiles,
    Triples,
    empty_triples,
    label_positions,
    numbered,
    opened,
    pairs_of,
)
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.own_rows import agreed, opening
from ripieno.algorithms.reported import report_warning, reported
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

#: From this rank on, conjugate gradients need fewer operations.
CG_RANK = 16
#: Number of (user, item) pairs per block of predictions.
PREDICTED_PAIR_COUNT = 1 << 18


@dataclass(frozen=True, kw_only=True, repr=False)
class ALSReport(RunReport):
    """The report of a fit; rows are users, columns are items.

    Parameters
    ----------
    rating_count
        Number of ratings.
    exchanges
        The exchange of the factors of items, and of users.
    """

    rating_count: int = 0
    exchanges: tuple[FactorExchange, ...] = ()

    @property
    def ways(self) -> tuple[FactorExchange, ...]:
        """Deprecated name of `exchanges`."""
        log.warn("ALSReport.ways is deprecated, use exchanges", DeprecationWarning)
        return self.exchanges


class ALS(ALSParameters, IterativeEstimator, ObservedEstimator):
    """Matrix factorization by alternating least squares: the products of user and item factors approximate ratings.

    Explicit ratings are fitted with an L2 penalty: `reg` times the squared factors of the user and the item of each
    rating, as in Spark's MLlib. Implicit ratings are counts. Rated pairs have the target 1 and the weight 1 + `alpha`
    times the count; all other pairs have the target 0 and the weight 1.

    Attributes
    ----------
    user_ids_, item_ids_ : ndarray of shape (n_users,) and (n_items,)
        Ids of users and items, ascending; for a sparse matrix, row and column numbers from 0.
    user_factors_, item_factors_ : ndarray of shape (n_users, rank) and (n_items, rank), float32
        Zeros for users and items without ratings.
    objective_ : float
        Final value of the objective.
    test_error_ : float
        `rmse` of the ratings `test`, or their `percentile_rank` for implicit ratings. Only if `test` was passed.
    n_iter_ : int
        Number of iterations, including iterations before a checkpoint.
    report_ : ALSReport
        Objective and seconds of each iteration and rank, and the exchange of the factors.

    References
    ----------
    Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, eq. 3 to 5, 8.
    Zhou, Wilkinson, Schreiber and Pan, "Large-scale parallel collaborative filtering for the Netflix prize", AAIM 2008.

    Examples
    --------
    >>> from ripieno.algorithms import ALS
    >>> users, items = ["ann", "ann", "bob", "bob", "cem"], ["tea", "jam", "tea", "ham", "jam"]
    >>> model = ALS(rank=2, random_state=0).fit((users, items, [5, 1, 5, 4, 2]))
    >>> model.predict(["ann", "bob"], ["tea", "ham"]).round()
    array([5., 4.], dtype=float32)
    >>> model.recommend("ann", 1)[0]
    array(['ham'], dtype='<U3')
    """

    _command = "als"
    _private_results = ("_rated_starts", "_rated")
    _optional_results = ("test_error_",)

    _rated_starts: NDArray[np.int64]
    _rated: NDArray[np.int32]
    user_ids_: NDArray[Any]
    item_ids_: NDArray[Any]
    user_factors_: NDArray[np.float32]
    item_factors_: NDArray[np.float32]
    objective_: float
    test_error_: float
    solver_: str
    n_iter_: int
    report_: ALSReport

    @reported
    def fit(
        self,
        ratings: Any,
        y: object = None,
        *,
        test: Any = None,
        comm: Communicator | None = None,
        rows: Rows | None = None,
    ) -> ALS:
        """Fit the factors.

        Parameters
        ----------
        ratings : sparse matrix, table, tuple (users, items, ratings), path, glob, or list of paths
            A SciPy matrix has a row for each user and a column for each item. Tables are frames of pandas, polars or
            Arrow, or files: .parquet, .arrow, .csv or .tsv. Each worker reads its own share of files. Users and items
            of tables are integers or strings. Files may also be matrices in .mtx or of scipy.sparse.save_npz, or .npz
            with arrays user, item and rating. Users and items without ratings in a matrix have no factors. With
            matrices and `rows="own"`, the users of a rank get numbers above the users of lower ranks.
        y : ignored
        test : ratings, as above, optional
            Other ratings that are compared with their predictions after the fit, in the calling process.
        """
        options = self._worker_options(
            ALSOptions,
            solver=self._chosen_solver(),
            seed=self._seed(comm),
            exchange=None if self.exchange == "auto" else self.exchange,
        )
        if rows == "own" and comm is not None:
            source, user_ids, item_ids = self._encode_own(ratings, comm)
        else:
            source, user_ids, item_ids = self._encode(ratings)
        parts = self._run_fit(program.fit, source, options, comm=comm, rows=rows)
        first: ALSPart = parts[0]
        if first.user_ids is not None and first.item_ids is not None:
            user_ids, item_ids = first.user_ids, first.item_ids
        self.user_ids_, self.item_ids_ = user_ids, item_ids
        self.solver_ = options.solver
        self._store_result(parts)
        self.__dict__.pop("test_error_", None)
        if test is not None:
            self.test_error_ = -self.score(test)
        return self

    def predict(self, users: Any, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """Predict the ratings of pairs; implicit predictions are near 1 for likely pairs.

        Parameters
        ----------
        users, items : array-like of shape (n,), or a single one for all
            Ids of users and items. Without `items`, `users` holds both: a table with a column of each, named as in
            `fit`, paths of such tables, or an array of shape (n, 2).

        Returns
        -------
        ndarray of shape (n,), float32
            NaN where the user or the item had no ratings.
        """
        check_is_fitted(self, "user_factors_")
        if items is None:
            users, items = pairs_of(users, self.columns)
        of_users, of_items = np.broadcast_arrays(self._users(users), self._items(items))
        return self._predicted(of_users, of_items)

    def recommend(self, user: Any, n: int = 10, *, filter_rated: bool = True) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the items with the highest predicted ratings for a user, or for each of several users.

        Parameters
        ----------
        user : int or str, or array-like of shape (m,)
            Id of the user, or ids of several.
        n : int, default=10
            Number of items; fewer are returned if not enough exist.
        filter_rated : bool, default=True
            Exclude items that the user rated.

        Returns
        -------
        items : ndarray of shape (n,), or (m, n) for several users
            Item ids, best first. If fewer items exist for one of several users than for another, -1 or an empty string
            fills the row.
        scores : ndarray of the same shape, float32
            Predicted ratings; NaN in the filled part.

        Raises
        ------
        InputError
            A user had no ratings in the fit.
        """
        check_is_fitted(self, "user_factors_")
        check_count("n", n)
        if np.ndim(user) == 0:
            return self._recommended(user, int(self._users([user])[0]), n, filter_rated)
        places = zip(np.asarray(user).tolist(), self._users(user), strict=True)
        found = [self._recommended(each, int(place), n, filter_rated) for each, place in places]
        longest = max((len(items) for items, _ in found), default=0)
        no_item = "" if self.item_ids_.dtype.kind == "U" else -1
        all_items = np.full((len(found), longest), no_item, self.item_ids_.dtype)
        all_scores = np.full((len(found), longest), np.nan, np.float32)
        for row, (items, scores) in enumerate(found):
            all_items[row, : len(items)], all_scores[row, : len(items)] = items, scores
        return all_items, all_scores

    def _recommended(
        self, user: Any, place: int, n: int, filter_rated: bool
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the best items and scores of the user with factors at `place`."""
        if place < 0:
            raise InputError(f"user {user!r} had no ratings when the model was fitted, so nothing can be recommended")
        scores = self.item_factors_ @ self.user_factors_[place]
        unrated = self._item_rated.copy()
        if filter_rated:
            unrated[self._rated_by(place)] = False
        candidates = np.flatnonzero(unrated)
        best = candidates[np.argsort(-scores[candidates], kind="stable")[:n]]
        return self.item_ids_[best], scores[best]

    def rmse(self, ratings: Any) -> float:
        """Return the root mean square error of predictions; `ratings` accepts the same input as `fit`.

        Pairs with a user or item without ratings are excluded, with a warning.
        """
        errors = []
        for users, items, values in self._known_ratings(ratings):
            errors.append(self._predicted(users, items).astype(np.float64) - values)
        return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))

    def percentile_rank(self, ratings: Any) -> float:
        """Return the mean percentile rank of the items in their users' lists: 0 is best, 1 worst, random is 0.5.

        A list contains all items that the user did not rate in the fit. Means are weighted by the ratings, as in Hu,
        Koren and Volinsky, eq. 8. `ratings` accepts the same input as `fit`.
        """
        total = weight = 0.0
        for users, items, values in self._known_ratings(ratings, by_user=True):
            scores = self.item_factors_ @ self.user_factors_[users[0]]
            is_listed = self._item_rated.copy()
            is_listed[self._rated_by(int(users[0]))] = False
            sorted_scores = np.sort(scores[is_listed])
            above = len(sorted_scores) - np.searchsorted(sorted_scores, scores[items], side="right")
            total += float(values @ (above / max(len(sorted_scores) - 1, 1)))
            weight += float(values.sum())
        if not weight:
            raise InputError("ratings: sum is 0: expected at least one rating > 0")
        return total / weight

    def score(self, ratings: Any, y: object = None) -> float:
        """Return minus the `rmse`, or, for implicit ratings, minus the `percentile_rank`."""
        return -(self.percentile_rank(ratings) if self.implicit else self.rmse(ratings))

    def _chosen_solver(self) -> str:
        if self.solver != "auto":
            return self.solver
        return "cg" if self.implicit and self.rank >= CG_RANK else "cholesky"

    def _read_input(self, ratings: Any) -> Triples | RatingFiles:
        return opened(ratings, self.columns)

    def _encode_own(self, ratings: Any, comm: Communicator) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """Return this rank's own ratings, like `_encode`. User numbers follow the users of lower ranks."""
        triples = None
        with opening(comm):
            if ratings is not None:
                found = self._read_input(ratings)
                triples = found.read() if isinstance(found, RatingFiles) else found
                triples = triples.checked(implicit=self.implicit, where=f"rank {comm.rank}: ")
        shape = ratings.shape if hasattr(ratings, "tocoo") else None
        is_matrix = agreed(comm, None if triples is None else shape is not None, "ratings in a matrix")
        if not is_matrix:
            return OwnRatings(triples or empty_triples()), np.empty(0, np.int64), np.empty(0, np.int64)
        item_count = agreed(comm, None if shape is None else int(shape[1]), "columns of the matrix of ratings")
        counts = comm.allgather(0 if shape is None else int(shape[0]))
        first, user_count = sum(counts[: comm.rank]), sum(counts)
        mine = triples or empty_triples()
        users, items = (ids.to_numpy().astype(np.int32) for ids in (mine.users, mine.items))
        own = NumberedRatings(users + np.int32(first), items, mine.values, user_count, item_count)
        return OwnRatings(own), np.arange(user_count), np.arange(item_count)

    def _encode(self, ratings: Any) -> tuple[NumberedRatings | RatingFiles, NDArray[Any], NDArray[Any]]:
        """Return the ratings in the form that workers receive, and the ids of users and items if known."""
        found = self._read_input(ratings)
        if isinstance(found, RatingFiles):
            return found, np.empty(0, np.int64), np.empty(0, np.int64)
        found = found.checked(implicit=self.implicit, where="")
        if hasattr(ratings, "tocoo"):
            user_ids, item_ids = (np.arange(count) for count in ratings.shape)
            users, items = (ids.to_numpy().astype(np.int32) for ids in (found.users, found.items))
        else:
            (users, user_ids), (items, item_ids) = numbered(found.users), numbered(found.items)
        return NumberedRatings(users, items, found.values, len(user_ids), len(item_ids)), user_ids, item_ids

    def _store_result(self, parts: Sequence[ALSPart]) -> None:
        first = parts[0]
        self.user_factors_ = np.concatenate([part.users for part in parts])
        self.item_factors_ = np.concatenate([part.items for part in parts])
        counts = np.concatenate([part.user_counts for part in parts])
        self._rated_starts = np.concatenate([[0], np.cumsum(counts)])
        self._rated = np.concatenate([part.rated for part in parts])
        self._user_rated = counts > 0
        self._item_rated = np.concatenate([part.item_counts for part in parts]) > 0
        measures = first.record.measures
        self.objective_ = float(measures[-1]["objective"])
        self.resumed_from_ = first.resumed_from
        self.n_iter_ = len(measures) + (first.resumed_from or 0)
        with report_warning():
            plain = RunReport.of(
                [part.record for part in parts],
                row_count=len(self.user_ids_),
                column_count=len(self.item_ids_),
                dtype="float32",
            )
            values = {field.name: getattr(plain, field.name) for field in fields(plain)}
            self.report_ = ALSReport(**values, rating_count=first.rating_count, exchanges=first.exchanges)

    def _restore(self, result: ResultFolder) -> None:
        super()._restore(result)
        self._user_rated = np.diff(self._rated_starts) > 0
        self._item_rated = np.bincount(self._rated, minlength=len(self.item_ids_)) > 0

    def _users(self, ids: Any) -> NDArray[np.int64]:
        return _rated_only(label_positions(ids, self.user_ids_, "users"), self._user_rated)

    def _items(self, ids: Any) -> NDArray[np.int64]:
        return _rated_only(label_positions(ids, self.item_ids_, "items"), self._item_rated)

    def _rated_by(self, place: int) -> NDArray[np.int32]:
        return self._rated[self._rated_starts[place] : self._rated_starts[place + 1]]

    def _predicted(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.full(len(users), np.nan, np.float32)
        known = np.flatnonzero((users >= 0) & (items >= 0))
        for begin in range(0, len(known), PREDICTED_PAIR_COUNT):
            block = known[begin : begin + PREDICTED_PAIR_COUNT]
            factors = self.user_factors_[users[block]], self.item_factors_[items[block]]
            found[block] = np.einsum("ij,ij->i", *factors)
        return found

    def _known_ratings(
        self, ratings: Any, *, by_user: bool = False
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Return ratings of known ids as (user positions, item positions, values), per user if `by_user`."""
        check_is_fitted(self, "user_factors_")
        found = self._read_input(ratings)
        triples = found.read() if isinstance(found, RatingFiles) else found
        triples = triples.checked(implicit=self.implicit, where="")
        users, items, values = self._users(triples.users), self._items(triples.items), triples.values
        known = (users >= 0) & (items >= 0)
        if not known.any():
            raise InputError("ratings: expected users and items that had ratings when the model was fitted")
        if not known.all():
            ignored = len(known) - np.count_nonzero(known)
            log.warn(
                f"{ignored} of {len(known)} ratings belong to users or items without ratings in the "
                "fit, and are ignored",
            )
            users, items, values = users[known], items[known], values[known]
        if not by_user:
            return [(users, items, values)]
        order = np.argsort(users, kind="stable")
        users, items, values = users[order], items[order], values[order]
        ends = np.flatnonzero(np.diff(users)) + 1
        return list(zip(np.split(users, ends), np.split(items, ends), np.split(values, ends), strict=True))


def _rated_only(places: NDArray[np.int64], rated: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Replace positions without ratings by -1."""
    known = places >= 0
    known[known] = rated[places[known]]
    return np.where(known, places, -1)
