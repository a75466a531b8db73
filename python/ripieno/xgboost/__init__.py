"""XGBoost on the ranks of a job: `train`, and `network` for programs that call XGBoost themselves.

XGBoost has its own collectives, over TCP connections without authentication. Here the ranks start and join them, so no
separate tracker and no list of machines is needed.
"""

from ripieno.xgboost.network import network
from ripieno.xgboost.train import train

__all__ = ["network", "train"]
