"""A table in a shared window, an operation of the program, locations of maxima, and parts of different lengths."""

import numpy as np
from mpi4py import MPI

SIZE = 1000

world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate_shared(8 * SIZE if node.rank == 0 else 0, 8, comm=node)
memory, unit = window.Shared_query(0)
table = np.ndarray(buffer=memory, dtype="d", shape=(SIZE,))
window.Fence()
table[node.rank :: node.size] = np.arange(SIZE)[node.rank :: node.size] ** 2
window.Fence()
print("table", world.rank, unit, table.sum(), table[-1])
window.Fence()
window.Lock_all()
if node.rank == node.size - 1:
    table[0] = 42
window.Sync()
node.Barrier()
window.Sync()
print("first", world.rank, table[0])
window.Unlock_all()
window.Free()


def hypotenuse(a, b, _):
    np.hypot(np.frombuffer(a, "d"), np.frombuffer(b, "d"), out=np.frombuffer(b, "d"))


operation, lengths = MPI.Op.Create(hypotenuse, commute=True), np.empty(3)
world.Allreduce(np.full(3, world.rank + 1.0), lengths, operation)
print("lengths", world.rank, np.round(lengths, 9).tolist())
operation.Free()

pair = np.zeros(1, np.dtype([("value", "f8"), ("rank", "i4")], align=True))
pair["value"], pair["rank"] = 7 * world.rank % 5, world.rank
largest = np.zeros_like(pair)
world.Allreduce([pair, 1, MPI.DOUBLE_INT], [largest, 1, MPI.DOUBLE_INT], MPI.MAXLOC)
smallest = world.allreduce((float(pair["value"][0]), world.rank), MPI.MINLOC)
print("largest", world.rank, largest["value"][0], largest["rank"][0], smallest)

counts = list(range(1, world.size + 1))
gathered = np.empty(sum(counts)) if world.rank == 0 else None
world.Gatherv(np.full(world.rank + 1, float(world.rank)), [gathered, counts], root=0)
part = np.empty(world.rank + 1)
world.Scatterv([gathered, counts], part, root=0)
print("part", world.rank, part.tolist())
