"""Distributed LightGBM on ranks: histograms and splits travel over a communicator, without ports or machine lists.

with rp.lightgbm.network(comm) as net:                                 # in a program, on every rank
    booster = lgb.train(params | net.params, data)                     # data: this rank's rows

model = rp.lightgbm.LGBMClassifier(workers=4).fit(X, y)                # starts its workers, in any engine
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ripieno.lightgbm.exchange import Network, network

if TYPE_CHECKING:
    from ripieno.lightgbm.estimators import LGBMClassifier, LGBMRanker, LGBMRegressor

__all__ = ["LGBMClassifier", "LGBMRanker", "LGBMRegressor", "Network", "network"]


if not TYPE_CHECKING:
    # Type checkers would accept any name.
    def __getattr__(name: str) -> Any:
        if name in __all__:
            from ripieno.lightgbm import estimators

            return getattr(estimators, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
