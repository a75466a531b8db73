"""A worker process of the local engine: ``python -m ripieno.launch.worker <descriptor>``.

It meets its peers with the launcher's help, then runs programs until the launcher says that it is over, or is gone.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from typing import Any

from ripieno import flight
from ripieno.comm import Communicator
from ripieno.errors import SerializationError
from ripieno.launch import process
from ripieno.launch.channel import Channel, HungUp, inherited
from ripieno.launch.racks import rack_of_this_host
from ripieno.launch.report import Report


def main(fd: int) -> None:
    """Serve the launcher at the other end of descriptor `fd`."""
    process.ignore_interrupts()
    channel = inherited(fd)
    try:
        kind, setup = channel.receive()
        assert kind == "setup", "the launcher speaks first and says who this worker is"
        if setup["die_with"] is not None:
            process.die_with(setup["die_with"])
        threading.Thread(target=_end_with_launcher, args=(channel,), daemon=True).start()
        sys.path[:] = setup["sys_path"]
        _serve(channel, **setup["communicator"])
    except HungUp:
        os._exit(1)


def _serve(channel: Channel, *, rank: int, threads: int, **options: Any) -> None:
    try:
        comm = _meet(channel, rank, threads, options)
    except Exception as error:
        channel.send("error", Report.of(error, rank, socket.gethostname()))
        # The launcher ends this process: an end of its own could be taken for the cause.
        threading.Event().wait()
        return
    # Of all ranks, whoever has died, where ranks have copies.
    together = comm if options["replicas"] == 1 else comm.replicate(options["replicas"])
    channel.send("ready", comm.hosts[rank])
    while _served(channel, comm, together):
        sys.stdout.flush()
        sys.stderr.flush()
    comm.close()


def _served(channel: Channel, comm: Communicator, together: Communicator) -> bool:
    """Take one message; False if it was the last."""
    try:
        kind, value = channel.receive()
        if kind == "close":
            return False
        program, args, kwargs = value
        result = program(comm, *args, **kwargs)
        # A rank that still waits for this one learns here that it has finished.
        together.barrier()
        _send_result(channel, comm, result)
    except HungUp:
        raise
    except BaseException as error:
        _fail(channel, comm, error)
    return True


def _send_result(channel: Channel, comm: Communicator, result: Any) -> None:
    try:
        channel.send("result", result)
    except SerializationError as error:
        message = f"the result of rank {comm.rank}, a {type(result).__name__}, cannot be sent: {error}"
        raise SerializationError(message) from None


def _meet(channel: Channel, rank: int, threads: int, options: dict[str, Any]) -> Communicator:
    from ripieno import _native

    def exchange(text: str) -> list[str]:
        channel.send("exchange", text)
        kind, texts = channel.receive()
        assert kind == "exchange", "the launcher answers an exchange before anything else"
        return texts

    options["rack"] = rack_of_this_host(options.pop("racks", None))
    options = flight.prepared(options)
    native = _native.Communicator.connect(rank, options.pop("world_size"), exchange, **options)
    return Communicator(native, threads=threads, on_event=lambda event: channel.send("event", event))


def _fail(channel: Channel, comm: Communicator, error: BaseException) -> None:
    report = Report.of(error, comm.rank, comm.hosts[comm.rank]).told_to_all(comm)
    sys.stdout.flush()
    channel.send("error", report)


def _end_with_launcher(channel: Channel) -> None:
    """End this process when the launcher hangs up, whatever the program is doing."""
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLRDHUP)
    watch.poll()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
