"""A ring of persistent requests, persistent and non-blocking collectives, a cancelled receive, and a group."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
leaving, entering = np.zeros(5), np.zeros(5)
ring = [comm.Recv_init(entering, left, 4), comm.Send_init(leaving, right, 4)]
for step in range(20):
    leaving[:] = 100 * step + comm.rank + np.arange(5)
    MPI.Prequest.Startall(ring)
    ended = set()
    while len(ended) < 2:
        ended |= set(MPI.Request.Waitsome(ring))
    assert (entering == 100 * step + left + np.arange(5)).all()
for request in ring:
    request.Free()

part, total = np.zeros(3), np.zeros(3)
reduction = comm.Allreduce_init(part, total, MPI.SUM)
for step in range(4):
    part[:] = comm.rank + step
    reduction.Start()
    reduction.Wait()
    print("sum", comm.rank, step, total.tolist())
reduction.Free()

gathered = np.empty(comm.size, int)
requests = [comm.Ibcast(part, 0), comm.Ibarrier(), comm.Iallgather(np.array([comm.rank]), gathered)]
while not MPI.Request.Testall(requests):
    pass
print("gathered", comm.rank, gathered.tolist(), part.tolist())

status = MPI.Status()
request = comm.Irecv(np.empty(1), MPI.ANY_SOURCE, 77)
request.Cancel()
request.Wait(status)
print("cancelled", comm.rank, status.Is_cancelled())

odd = comm.Get_group().Incl(range(1, comm.size, 2))
part_of_world = comm.Create(odd)
if part_of_world != MPI.COMM_NULL:
    ranks = MPI.Group.Translate_ranks(odd, list(range(odd.size)), comm.Get_group())
    print("odd", comm.rank, part_of_world.allreduce(comm.rank), part_of_world.exscan(1), list(ranks))
