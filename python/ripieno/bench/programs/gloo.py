"""Time Gloo's collectives through torch.distributed: ``python gloo.py BUDGET CASE …``, rules as in ``timing.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from ripieno.bench.programs.timing import Vectors, measured
else:
    # This file runs as a script next to `timing.py`.
    from timing import Vectors, measured


class Gloo:
    """A world of torch.distributed."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.barrier = dist.barrier

    def slowest(self, seconds: float) -> float:
        """Return the maximum of all ranks' seconds."""
        own = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        return float(own.item())

    def call(self, collective: str, vectors: Vectors, algorithm: str | None) -> Callable[[], object]:
        """Return a call on the same memory."""
        main = torch.from_numpy(vectors.main)
        rows = list(main.split(vectors.block)) if vectors.block < len(main) else [main]
        own, is_root = rows[self.rank] if len(rows) > 1 else main, self.rank == 0
        calls: dict[str, Callable[[], object]] = {
            "broadcast": lambda: dist.broadcast(main, 0),
            "reduce": lambda: dist.reduce(main, 0),
            "allreduce": lambda: dist.all_reduce(main),
            "allgather": lambda: dist.all_gather(rows, own),
            "gather": lambda: dist.gather(own, rows if is_root else None),
            "scatter": lambda: dist.scatter(own, rows if is_root else None),
            "barrier": dist.barrier,
        }
        return calls[collective]


def main() -> None:
    """Time the cases of the command line; rank 0 prints."""
    world = Gloo()
    for case in sys.argv[2:]:
        for seconds in measured(world, case, float(sys.argv[1])):
            if world.rank == 0:
                print(f"{case} {seconds:.9f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
