"""XGBoost on the ranks of a job: `train`, and `network` for programs that call XGBoost themselves.

XGBoost has collectives of its own, over TCP connections that nobody authenticates. Here the ranks start and join them,
so that there is no tracker to run and no list of machines to write.
"""

from ripieno.xgboost.network import network
from ripieno.xgboost.train import train

__all__ = ["network", "train"]
