"""Provide the main function of a local worker process, forked by `ripieno.launch.job.fork_server`.

The worker joins its peers through the launcher, then runs programs until the launcher ends the job or disconnects.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from typing import Any

from ripieno import log
from ripieno.comm.communicator import Communicator
from ripieno.host import Core
from ripieno.launch.binding import Binding, cpus_of_ranks
from ripieno.launch.deadline import is_ready
from ripieno.launch.job import programs
from ripieno.launch.job.stand_ins import rank_values
from ripieno.launch.process.channel import Channel, ConnectionClosed, inherited
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.waits import WaitReporter
from ripieno.wire import main_module
from ripieno.wire.zero_copy import can_read


def main(fd: int) -> None:
    """Serve the launcher at the other end of descriptor `fd`."""
    channel = inherited(fd)
    try:
        kind, setup = channel.receive()
        assert kind == "setup", "the first message of the launcher names this worker"
        threading.Thread(target=_end_with_launcher, args=(channel,), daemon=True).start()
        sys.path[:] = setup["sys_path"]
        main_module.replace_main(setup["main"])
        log.show_if_set()
        channel.send("can-read", can_read(*setup["probe"]))
        _serve(channel, **setup["communicator"])
    except ConnectionClosed:
        os._exit(1)


def _serve(
    channel: Channel, *, replicas: int, restarts_on_failure: bool, binding: Binding, cores: list[Core], **options: Any
) -> None:
    events = programs.Events()
    events.send = channel.send

    def connect(rank: int, world_size: int) -> Communicator:
        # The cores are divided again among the current number of ranks.
        if binding.is_requested:
            cpus_of_ranks(binding, [options["threads"]] * world_size, cores)[rank].take()
        return programs.connect(
            rank,
            world_size,
            programs.through(channel),
            on_event=events,
            replicas=replicas,
            **options,
        )

    kind, place = channel.receive()
    if kind == "close":
        return  # a spare that was not needed
    try:
        comm = connect(*place)
    except Exception as error:
        channel.send("error", FailureReport.of(error, place[0], socket.gethostname()))
        # The launcher ends this process. It could mistake an earlier exit for the cause of the failure.
        threading.Event().wait()
        return
    session = programs.RankSession(comm, connect, replicas, events, restarts_on_failure)
    WaitReporter(lambda: session.comm._latest, channel.send).start()
    with rank_values({}):
        programs.serve(channel, session)
    session.close()


def _end_with_launcher(channel: Channel) -> None:
    """End this process when the launcher disconnects, in any state of the program."""
    is_ready(channel, None, select.POLLRDHUP)
    os._exit(1)
