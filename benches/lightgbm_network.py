"""Benchmark of LightGBM on emulated hosts: trees with its own sockets and with a communicator, alternating.

    .venv/bin/python benches/lightgbm_network.py [--hosts 8] [--rate 100mbit] [--rounds 3] [--trees 4]

Needs root, for `ripieno lab`. The limit is the minimum of histogram bytes on a network link over its rate: (p-1)/p of
them out of each host, for each reduce-scatter.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

FEATURES, ROWS_PER_RANK = 200, 2_000
#: First port of LightGBM's listeners. Each round uses new ports, because LightGBM cannot reuse a recent port.
FIRST_PORT = 12_400


def rank(found: str, transport: str, learner: str, trees: int, port: int, addresses: list[str]) -> None:
    """Train as one rank; rank 0 writes seconds, bytes and a hash of the trees to file `found`."""
    import lightgbm as lgb
    import numpy as np
    import ripieno as rp

    comm = rp.init()
    rng = np.random.default_rng(comm.rank)
    x = rng.normal(size=(ROWS_PER_RANK, FEATURES))
    y = (x[:, :10].sum(axis=1) + rng.normal(size=len(x)) > 0).astype(float)
    params = {"objective": "binary", "num_leaves": 31, "verbose": -1, "seed": 1, "num_threads": 1}
    params |= {"tree_learner": learner, "num_machines": comm.world_size, "pre_partition": True}

    def train() -> str:
        return lgb.train(params, lgb.Dataset(x, y, params=params), trees).model_to_string()

    comm.barrier()
    begin = time.perf_counter()
    sent = 0
    if transport == "ripieno":
        with rp.lightgbm.network(comm, learner) as net:  # type: ignore[arg-type]
            model = train()
        sent = net.bytes
    else:
        machines = ",".join(f"{address}:{port}" for address in addresses)
        params |= {"machines": machines, "local_listen_port": port, "time_out": 1}
        model = train()
    comm.barrier()
    if comm.rank == 0:
        trained = model.split("Tree=0", 1)[1].split("end of trees")[0]
        digest = hashlib.sha256(trained.encode()).hexdigest()
        Path(found).write_text(json.dumps([time.perf_counter() - begin, sent, digest]))


@click.command(help=__doc__)
@click.option("--hosts", type=int, default=8, show_default=True)
@click.option("--rate", default="100mbit", show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--trees", type=int, default=4, show_default=True)
@click.option("--learner", type=click.Choice(["data", "voting"]), default="data", show_default=True)
def main(hosts: int, rate: str, rounds: int, trees: int, learner: str) -> None:
    from ripieno.lab import Lab
    from ripieno.units import bits_per_s

    taken: dict[str, list[float]] = {"sockets": [], "ripieno": []}
    models, sent = set(), 0
    with TemporaryDirectory() as folder, Lab(hosts=hosts, rate=rate) as lab:
        found = Path(folder) / "found"
        addresses = [host.address for host in lab.hosts]
        for each in range(rounds):
            for transport, seconds in taken.items():
                command = [sys.executable, str(Path(__file__).resolve()), "rank", str(found), transport, learner]
                if (
                    lab.run([*command, str(trees), str(FIRST_PORT + each), *addresses], timeout_s=120, prefix=False)
                    != 0
                ):
                    raise SystemExit(f"{transport} has failed")
                seconds_of, sent_of, model = json.loads(found.read_text())
                seconds.append(seconds_of)
                models.add(model)
                sent = sent_of or sent
    limit_s = sent * (hosts - 1) / hosts * 8 / bits_per_s("rate", rate)
    medians = {transport: statistics.median(seconds) for transport, seconds in taken.items()}
    for transport, seconds in taken.items():
        print(f"{transport}: {medians[transport]:.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    print(
        f"ours / sockets {medians['ripieno'] / medians['sockets']:.2f}, ours / limit {medians['ripieno'] / limit_s:.2f}"
    )
    print("the same model" if len(models) == 1 else f"{len(models)} models")


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]), sys.argv[7:])
    else:
        main()
