"""The names of `mpi4py.util.pkl5`: all communicators of this package send objects by protocol 5."""

from __future__ import annotations

from ripieno.mpi.communicator import Comm, Intracomm
from ripieno.mpi.matched import Message
from ripieno.mpi.pickling import Pickle, pickle
from ripieno.mpi.requests import Request

__all__ = ["Comm", "Intracomm", "Message", "Pickle", "Request", "pickle"]
