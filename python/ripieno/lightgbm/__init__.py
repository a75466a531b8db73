"""Distributed LightGBM on ranks: histograms and splits travel over a communicator, without ports or machine lists.

with rp.lightgbm.network(comm) as net:                                 # in a program, on every rank
    booster = lgb.train(params | net.params, data)                     # data: this rank's rows

model = rp.lightgbm.LGBMClassifier(workers=4).fit(X, y)                # starts its workers, in any engine
"""

from ripieno.lightgbm.estimators import LGBMClassifier, LGBMRanker, LGBMRegressor
from ripieno.lightgbm.exchange import Network, network

__all__ = ["LGBMClassifier", "LGBMRanker", "LGBMRegressor", "Network", "network"]
