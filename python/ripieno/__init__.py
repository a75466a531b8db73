"""Ripieno: collectives for iterative analytics, and algorithms based on them.

import ripieno as rp

model = rp.KMeans(n_clusters=1000, workers=4).fit("vectors/*.npy")     # an estimator, which starts its workers

with rp.launch(workers=4) as job:                                      # one function that every rank runs
    results = job.run(program, data)

comm = rp.init()                                                       # a script:  ripieno run -n 4 script.py
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ripieno import algorithms as algorithms
from ripieno import log
from ripieno._version import __version__ as __version__
from ripieno.comm.communicator import Communicator
from ripieno.comm.functions import CFunction
from ripieno.comm.mailbox import ANY_TAG, ReceivedMessage
from ripieno.errors import (
    BroadcastError,
    CallTimeout,
    CheckpointError,
    CollectiveMismatch,
    CommunicatorClosed,
    EngineError,
    InputError,
    MissingExtra,
    MissingIndicesError,
    PlanError,
    RankFailed,
    RendezvousError,
    RipienoError,
    SerializationError,
    SpillError,
    TooFewSlots,
    UnsupportedError,
)
from ripieno.keyed import Groups, KeyValues, Table
from ripieno.launch import Job, init, launch
from ripieno.wire.arrays import empty
from ripieno.wire.calls import Handle, wait_any

if TYPE_CHECKING:
    from ripieno import input as input
    from ripieno import lightgbm as lightgbm
    from ripieno import mpi as mpi
    from ripieno import plan as plan
    from ripieno import spark as spark
    from ripieno import xgboost as xgboost
    from ripieno.algorithms import *
    from ripieno.algorithms.fruchterman_reingold.layout import layout
    from ripieno.algorithms.progress import Progress
    from ripieno.graph import Graph
    from ripieno.keyed.frame import KeyedFrame
    from ripieno.mapreduce import MapReduce, ObjectPairs
    from ripieno.text import count_words, grep, hash_features

__all__ = [
    "ALS",
    "ANY_TAG",
    "BFS",
    "MDS",
    "PCA",
    "BroadcastError",
    "CFunction",
    "CallTimeout",
    "CheckpointError",
    "ClusteringCoefficients",
    "CollectiveMismatch",
    "Communicator",
    "CommunicatorClosed",
    "CommunityDetection",
    "ConnectedComponents",
    "EffectiveDiameter",
    "EngineError",
    "FruchtermanReingold",
    "Graph",
    "Groups",
    "Handle",
    "InputError",
    "Job",
    "KMeans",
    "KeyValues",
    "KeyedFrame",
    "LinearRegression",
    "LogisticRegression",
    "MapReduce",
    "MiniBatchKMeans",
    "MissingExtra",
    "MissingIndicesError",
    "ObjectPairs",
    "PageRank",
    "PlanError",
    "Progress",
    "RankFailed",
    "ReceivedMessage",
    "RendezvousError",
    "Ridge",
    "RipienoError",
    "SerializationError",
    "ShortestPaths",
    "SparseSGD",
    "SpectralClustering",
    "SpectralEmbedding",
    "SpillError",
    "Table",
    "TooFewSlots",
    "UnsupportedError",
    "count_words",
    "empty",
    "grep",
    "hash_features",
    "init",
    "launch",
    "layout",
    "wait_any",
]

# Public names by module. `__getattr__` imports a module on first use: importing scikit-learn and PyArrow takes a
# second.
_LAZY = {
    "KeyedFrame": "ripieno.keyed.frame",
    "Graph": "ripieno.graph",
    "Progress": "ripieno.algorithms.progress",
    "MapReduce": "ripieno.mapreduce",
    "ObjectPairs": "ripieno.mapreduce",
    "count_words": "ripieno.text",
    "grep": "ripieno.text",
    "hash_features": "ripieno.text",
    "layout": "ripieno.algorithms.fruchterman_reingold.layout",
} | dict.fromkeys(algorithms.ESTIMATORS, "ripieno.algorithms")

# Modules imported on first use. `__all__` omits them: they share names with a built-in, an engine and frameworks.
_LAZY_MODULES = ("input", "lightgbm", "mpi", "plan", "spark", "xgboost")


if not TYPE_CHECKING:
    # Hidden from type checkers: with a module-level `__getattr__` they accept any name.
    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        if name in _LAZY_MODULES:
            return import_module(f"ripieno.{name}")
        if name == "Message":
            log.warn("ripieno.Message is deprecated, use ripieno.ReceivedMessage", DeprecationWarning)
            return ReceivedMessage
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY_MODULES, *(name for name in globals() if name.startswith("__"))})
