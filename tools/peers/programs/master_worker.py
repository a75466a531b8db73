"""A master that gives tasks to idle workers, and buffers of unknown length."""

import numpy as np
from mpi4py import MPI

READY, WORK, DONE, STOP, BUFFER = range(1, 6)

comm, status = MPI.COMM_WORLD, MPI.Status()
if comm.rank == 0:
    tasks, results, stopped = list(range(23)), {}, 0
    while stopped < comm.size - 1:
        found = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        worker = status.Get_source()
        if status.Get_tag() == DONE:
            results[found[0]] = found[1]
        if tasks:
            comm.send(tasks.pop(0), worker, WORK)
        else:
            comm.isend(None, worker, STOP).wait()
            stopped += 1
    print("results", sorted(results.items()))
else:
    comm.send(None, 0, READY)
    while True:
        comm.probe(0, MPI.ANY_TAG, status)
        task = comm.recv(source=0, tag=MPI.ANY_TAG)
        if status.tag == STOP:
            break
        comm.send((task, f"{task**3 - 1}"), 0, DONE)
comm.Barrier()

if comm.rank == 0:
    for _ in range(comm.size - 1):
        comm.Probe(MPI.ANY_SOURCE, BUFFER, status)
        part = np.empty(status.Get_count(MPI.DOUBLE))
        comm.Recv([part, MPI.DOUBLE], status.source, BUFFER)
        print("from", status.source, part.tolist())
else:
    comm.Send(np.arange(3.0 * comm.rank), 0, BUFFER)
