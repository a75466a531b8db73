"""A user's program that uses the whole public interface. `make check` has mypy and pyright check it; it is never run.

`assert_type` states the type that a checker must find; casts and ignored errors would be gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import ripieno as rp
import scipy.sparse as sp
from numpy.typing import NDArray
from ripieno.comm.broadcast_variables import Delivery, Recorded
from ripieno.comm.file_distribution import HostFile
from ripieno.comm.value_memory import BroadcastMemory
from ripieno.dashboard import Dashboard
from ripieno.features import HogOptions, extract, find_pictures
from ripieno.graph import Block, PartitionedGraph
from ripieno.launch import Broadcast, RankState, RankStatus
from ripieno.launch.engine import Engine
from ripieno.mpi.futures import MPIPoolExecutor
from ripieno.simulation import Cluster

Floats = NDArray[np.float64]


def collectives(comm: rp.Communicator, scale: float, *, offset: int = 0) -> Floats:
    mine: Floats = np.full(4, scale + offset + comm.rank)

    # The result has the type of the argument.
    assert_type(comm.broadcast(3), int)
    assert_type(comm.broadcast("word", root=1), str)
    assert_type(comm.broadcast(mine), Floats)
    assert_type(comm.broadcast({"a": [1, 2]}), dict[str, list[int]])
    assert_type(comm.broadcast(out=mine), Floats)
    assert_type(comm.allreduce(3), int)
    assert_type(comm.allreduce(2.5, "max"), float)
    assert_type(comm.allreduce(True), int)
    assert_type(comm.allreduce(True, "and"), bool)
    assert_type(comm.allreduce(mine), Floats)
    assert_type(comm.allreduce(mine, "min", out=mine), Floats)
    assert_type(comm.allreduce_init(mine, out=mine)(), Floats)
    assert_type(comm.allreduce((mine, comm.rank)), tuple[Floats, int])
    assert_type(comm.allreduce({"loss": 0.5}), dict[str, float])
    assert_type(comm.allreduce(mine, op=sum), Floats)
    assert_type(comm.allreduce(mine, op=np.maximum), Floats)
    assert_type(comm.scan(1), int)
    assert_type(comm.exscan(mine, "max"), Floats)
    assert_type(comm.allgather(comm.rank), list[int])
    assert_type(comm.allgather(mine), list[Floats])
    assert_type(comm.allgather((comm.rank, str(scale))), list[tuple[int, str]])
    assert_type(comm.allgather(mine, counts=[4] * comm.world_size), Floats)
    assert_type(comm.allgather(out=rp.empty(4 * comm.world_size)), Floats)
    assert_type(comm.rotate(mine), Floats)
    assert_type(comm.rotate("block", -1), str)
    assert_type(comm.reduce_scatter(mine), Floats)
    assert_type(comm.alltoall([str(peer) for peer in range(comm.world_size)]), list[str])
    assert_type(comm.alltoall(mine), list[Floats])
    assert_type(comm.neighbour_exchange({(comm.rank + 1) % comm.world_size: mine}), dict[int, Floats])

    x = rp.plan.vector(4)
    plan = rp.plan.Plan().send(1, x[:2]).receive(1, x.placed("scratch")).combine(x.chunk(0, 2), x[2:], "sum")
    plans = rp.plan.check([plan, rp.plan.Plan().reduce(0, x[:2]).send(0, x)])
    assert_type(plans, rp.plan.CheckedPlans)
    assert_type(plans.traffic[0].sent_bytes, int)
    assert_type(rp.plan.catalogue("allreduce", "ring", x, 2), list[rp.plan.Plan])
    assert_type(rp.plan.simulate(plans, Cluster(nodes=2)).seconds, float | None)
    rp.plan.draw(plans).save("plans.svg")
    print(rp.plan.table(plans))
    comm.run(plans, mine, out=mine)

    # Only the root receives a value, or provides one.
    assert_type(comm.reduce(mine), Floats | None)
    assert_type(comm.gather(comm.rank), list[int] | None)
    assert_type(comm.gather(mine, counts=[4] * comm.world_size), Floats | None)
    parts = ["a"] * comm.world_size if comm.rank == 0 else None
    assert_type(comm.scatter(parts), str)
    rows: Floats | None = np.zeros(8) if comm.rank == 0 else None
    assert_type(comm.scatter(rows), Floats)
    if (total := comm.reduce(1, root=0)) is not None:
        print(total + 1)
    # The None of other ranks is not part of the value's type, so receivers need no check for it.
    with comm.broadcast_variable(mine, strategy="chain", block_bytes=1 << 20, per_host=True) as shared:
        assert_type(shared.value, Floats)
        assert_type(shared.delivery(), Delivery | None)
        assert_type(shared.recorded(), Recorded)
    assert_type(comm.broadcast_variable({"rate": 0.1} if comm.rank == 0 else None).value, dict[str, float])
    assert_type(comm.broadcast_memory(limit_bytes=1 << 30, spill_directory="/scratch"), BroadcastMemory)
    copied = comm.distribute(["model.bin"], "/scratch/", strategy="csb", overwrite=True, keep_partial=True)
    assert_type(copied, list[HostFile])
    print([file.path for file in copied if not file.is_whole])
    settings = comm.broadcast({"rate": 0.1} if comm.rank == 0 else None)
    rate: float = settings["rate"]
    print(rate)

    comm.barrier()
    assert_type(comm.agree(True), bool)
    assert_type(comm.agree(6), int)
    assert_type(comm.tasks(str, [1, 2]), list[str])
    with comm.team(threads=2, model="bsp") as team:
        assert_type(team.run(float), list[float])
        assert_type(team.tasks(len, ["part"]), list[int])
        print(team.threads)
    if comm.rank == 0:
        comm.send([1, 2], to=1)
        comm.send_into(mine, to=1)
    elif comm.rank == 1:
        numbers: list[int] = comm.recv(0)
        assert_type(comm.recv(0, out=mine), Floats)
        print(numbers)
    return comm.allreduce(mine, algorithm="ring", order="given")


def asynchronous(comm: rp.Communicator, values: Floats) -> int:
    first = comm.allreduce_async(values)
    second = comm.allgather_async(comm.rank, algorithm="ring")
    third = comm.broadcast_async("word")
    fourth = comm.allreduce_async(3, "max")
    assert_type(first.wait(), Floats)
    assert_type(second.wait(), list[int])
    assert_type(third.wait(), str)
    assert_type(comm.barrier_async().wait(), None)
    assert_type(comm.allreduce_async(values, out=values).wait(), Floats)
    assert_type(comm.reduce_async(1.5).wait(), float | None)
    assert_type(fourth.done, bool)
    return fourth.wait()


def sparse(comm: rp.Communicator, indices: NDArray[np.int64]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = np.ones((len(indices), 2), np.float32)
    reduction = comm.sparse(indices, [0, 1, 2], size=100, missing="zero")
    print(reduction.explain(width=2))
    assert_type(comm.sparse_reduce(indices, values, [0, 1], "max"), NDArray[np.float32])
    return reduction.reduce(values)


def costs(comm: rp.Communicator) -> float:
    measured = comm.tune(budget_s=0.5)
    comm.adopt_racks({"north": ["node1", "gpu-*"]})
    comm.adopt_racks(comm.topology())
    assert_type(comm.try_algorithms(budget_s=5.0).rows("allreduce"), list[tuple[int, str]])
    assert_type(comm.sparse([1], [1], degrees="tried").degrees, str)
    assert_type(comm.explain("allreduce", nbytes=1 << 20).costs, str)
    return measured.add_s_per_byte if measured.network_link is None else measured.network_link.latency_s


def keyed(comm: rp.Communicator) -> rp.KeyValues:
    counts = rp.KeyValues(["pear", "fig"], [3, 1])
    assert_type(counts.combined(), rp.KeyValues)
    assert_type(counts.combined("concat"), rp.Groups)
    assert_type(counts.combined(np.maximum), rp.KeyValues)
    print(counts.top(1).values.sum(), counts.sorted("value").keys, counts.to_arrow())
    assert_type(comm.regroup(counts), rp.KeyValues)
    assert_type(comm.regroup(counts, combine="concat", partitioner="balanced"), rp.Groups)
    assert_type(comm.regroup_async(counts, combine="max").wait(), rp.KeyValues)
    assert_type(comm.regroup(counts, on_block=print), None)
    assert_type(comm.allgather(counts), rp.KeyValues)
    table = rp.Table({3: np.ones(2)}, combine="sum")
    table.add(3, np.ones(2))
    print({number: partition.sum() for number, partition in table.items()})
    assert_type(comm.regroup(table), rp.Table)
    assert_type(comm.allreduce(table), rp.Table)
    return comm.allreduce(counts, "max")


def groups(comm: rp.Communicator) -> float:
    assert_type(comm.shrink(), rp.Communicator)
    assert_type(comm.first_ranks, list[int])
    half = comm.split(comm.rank % 2)
    if half is None:
        return 0.0
    with half:
        waiting = comm.stats(all_ranks=True)
        print(waiting.verdict, comm.stats()["bytes_sent"], comm.flight(3), comm.hosts, comm.cache)
        return half.allreduce(1.0)


def scale(comm: rp.Communicator, table: Broadcast[Floats], row: int) -> Floats:
    return table.value * float(row * comm.rank)


def launching(engine: Engine) -> None:
    with rp.launch(workers=4, threads=1, bind="core", thread_affinity="pin", trace=Path("trace.json")) as job:
        assert_type(job.run(collectives, 1.5), list[Floats])
        assert_type(job.run(collectives, scale=1.5, offset=2), list[Floats])
        assert_type(job.run(asynchronous, np.zeros(3)), list[int])
        assert_type(job.run(keyed), list[rp.KeyValues])
        assert_type(job.run(lambda comm: comm.rank), list[int])
        rows, names = job.accumulator(0, op="sum"), job.accumulator(set(), add=set.union)
        job.run(lambda comm: rows.add(comm.rank))
        job.run(lambda comm: names.add({comm.rank}))
        print(rows.value)
        identity: Floats = np.eye(3)
        with job.broadcast(identity, strategy="csb", degree=2, verify=False, places=["/tmp"]) as table:
            assert_type(table.value, Floats)
            assert_type(job.run(scale, table, 1), list[Floats])
    for name in ("spark", "dask", "ray", "slurm", "mpirun"):
        with rp.launch(2, engine=name, links="tcp", tls=True, rendezvous_timeout_s=30.0) as elsewhere:
            elsewhere.run(groups)
    with rp.launch(2, engine=engine, dashboard=True) as there:
        assert_type(there, rp.Job)
        assert_type(there.dashboard, Dashboard | None)
        print(there.workers, there.lost, there.over)
        assert_type(there.ranks, list[RankStatus])
        print([each.cause for each in there.ranks if each.state is RankState.LOST])


def script() -> None:
    with rp.init() as comm:
        assert_type(comm, rp.Communicator)
        try:
            comm.allreduce(np.zeros(3))
        except rp.CallTimeout as error:
            print(error.wait, error.details)
        except rp.RankFailed as error:
            print(error.rank, error.host, error.results)
        except (rp.CollectiveMismatch, rp.InputError, rp.RipienoError):
            raise


def estimators(comm: rp.Communicator, X: Floats, y: NDArray[np.int64]) -> None:
    model = rp.KMeans(
        n_clusters=3, init="random", n_init=2, workers=2, random_state=0, options=rp.KMeans.Options(thread_model="bsp")
    ).fit(X)
    assert_type(rp.MDS(options=rp.MDS.Options(thread_model="bsp")).fit_transform(X), NDArray[np.float64])
    assert_type(model, rp.KMeans)
    assert_type(model.labels_, NDArray[np.int32])
    assert_type(model.inertia_, float)
    assert_type(model.predict(X), NDArray[np.int32])
    print(model.cluster_centers_, model.transform(X), model.score(X), model.report_.rows_per_s, model.n_iter_)
    model.report_.save(Path("fit.html"))
    rp.KMeans(2, on_iteration=rp.Progress(every_s=1.0)).fit(X)
    rp.KMeans(
        2,
        init=X[:2],
        engine="spark",
        checkpoint="kept",
        on_failure="shrink",
        options=rp.KMeans.Options(bounds="none", every=5),
    ).fit([Path("a.npy"), Path("b.npy")], comm=comm)
    rp.KMeans(2).fit(rp.input.BinaryFiles("vectors.bin", record_bytes=512))
    rp.KMeans(2).fit(rp.input.TableFiles("*.csv", types={"a": "bool"}, missing="drop", ignore=["name"], decimal=","))
    rp.Ridge().fit("houses.csv", target="price", columns=["rooms"], ignore=("town",), id="name")
    near = rp.KMeans(2, options=rp.KMeans.Options(assign="near")).fit(X)
    assert_type(rp.KMeans.load(Path("result")), rp.KMeans)
    assert_type((near.assignment_recall_, near.inertia_gap_), tuple[float, float])
    batches = rp.MiniBatchKMeans(3, init=model.cluster_centers_, batch_size=256, max_no_improvement=None, workers=2)
    assert_type(batches.fit(X, comm=comm).partial_fit(X, sample_weight=np.ones(len(X))), rp.MiniBatchKMeans)
    print(batches.counts_, batches.n_steps_, batches.predict(X))

    classifier = rp.SparseSGD(n_features=2**20, workers=2).fit(sp.csr_matrix(X), y)
    assert_type(classifier.coef_, Floats)
    assert_type(classifier.predict_proba(X), Floats)
    print(classifier.partial_fit(X, y, classes=[0, 1]).predict("new.libsvm"), classifier.score(X, y))

    recommender = rp.ALS(
        rank=8, implicit=True, workers=2, checkpoint=Path("kept"), options=rp.ALS.Options(every=2)
    ).fit(sp.csr_matrix(X))
    assert_type(recommender, rp.ALS)
    assert_type(recommender.user_factors_, NDArray[np.float32])
    assert_type(recommender.predict([1], [2]), NDArray[np.float32])
    assert_type(recommender.rmse(([1], [2], [3.0])) + recommender.percentile_rank("test.csv"), float)
    print(recommender.recommend("ann", n=3, filter_rated=False), recommender.score("test.csv"), recommender.n_iter_)
    print([each.chosen for each in recommender.report_.exchanges], recommender.item_ids_, recommender.resumed_from_)

    graph = rp.Graph((y, y), directed=False)
    assert_type(
        rp.PageRank(damping=0.9, on_failure="respawn", options=rp.PageRank.Options(every=10)).fit(graph).ranks_, Floats
    )
    assert_type(
        rp.BFS(source=0, checkpoint="kept", options=rp.BFS.Options(every=None)).fit(graph).distances_, NDArray[np.int64]
    )
    assert_type(rp.ShortestPaths(source=0, delta=0.5).fit(graph).distances_, Floats)
    assert_type(rp.CommunityDetection(max_iter=5, workers=2).fit(graph).n_communities_, int)
    assert_type(rp.ClusteringCoefficients(checkpoint="kept").fit(graph).triangles_, NDArray[np.int64])
    assert_type(rp.ConnectedComponents().fit("edges.txt").n_components_, int)
    assert_type(rp.EffectiveDiameter(random_state=1).fit(graph).effective_diameter_, float)
    assert_type(rp.SpectralClustering(n_clusters=2).fit_predict(graph), NDArray[np.int32])
    assert_type(rp.SpectralEmbedding(n_components=2).fit_transform(graph), Floats)

    axes = rp.PCA(n_components=2, workers=2).fit(X)
    line = rp.LinearRegression().fit(X, X[:, 0])
    places = rp.MDS(2, method="da-smacof", weights="weights.npy", metric="precomputed", checkpoint="kept", workers=2)
    assert_type(places.fit_transform("distances.npy"), Floats)
    assert_type(rp.MDS(metric="levenshtein").fit(["ACGT", "AGT"]).embedding_, Floats)
    assert_type(places.interpolate(X, n_neighbors=5, max_iter=100, tol=1e-4), Floats)
    assert_type(rp.FruchtermanReingold(2, k=0.1, init={0: (0, 1)}, fixed=[0]).fit(graph).positions_, Floats)
    assert_type(rp.layout(graph, iterations=20, scale=None, seed=1, method="force", workers=2), dict[Any, Floats])
    print(rp.FruchtermanReingold(approximation="barnes-hut", theta=0.5).fit(graph).approximation_)
    print(places.embedding_, places.stress_ + places.normalized_stress_, places.n_iter_, places.converged_)
    print(axes.transform(X), line.predict(X), rp.Ridge(alpha=0.5).fit(X, X[:, 0]).coef_)


def spread(block: Block) -> None:
    block.values["distance"] = np.minimum(block.values["distance"], block.messages)
    block.send_along_edges(block.values["distance"] + 1)
    block.aggregate("changed", len(block))
    block.halt(~block.received)


def graphs(comm: rp.Communicator) -> int:
    graph = rp.Graph("edges.csv", weighted=True).partition(comm, partitioner="hash", by="source")
    assert_type(graph, PartitionedGraph)
    graph.values["distance"] = np.full(len(graph.vertices), np.inf)
    messages = graph.send_along_edges(
        np.ones(len(graph.vertices)), "min", along=lambda values, weights: values + weights
    )
    assert_type(messages.received, NDArray[np.bool_])
    print(graph.send_messages([1, 2], [0.5, 1.5]).values)
    ran = graph.superstep(spread, combine="min", aggregators={"changed": ("sum", 0)}, max_supersteps=10)
    ids, rows = graph.allgather("distance")
    print(ran.halted, ran.aggregates["changed"], ids, rows)
    return len(ran)


def map_reduce(points: Floats) -> str:
    def assign(rows: Floats, centroids: Floats) -> rp.KeyValues:
        nearest = ((rows[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
        return rp.KeyValues(nearest, rows)

    with rp.MapReduce(map=assign, combine="sum", workers=2, name="kmeans", checkpoint=Path("checkpoints")) as job:
        job.cache(points, tasks=8)
        centroids: Floats = job.resume(points[:3])
        for iteration in job.iterations(20):
            job.broadcast(centroids)
            found: rp.KeyValues = job.step()
            print(iteration, found.values)
        print(rp.ObjectPairs([("a", 1.5)], ["x"]).sorted().to_dict())
        return job.report()


def files(comm: rp.Communicator) -> None:
    words = rp.count_words("corpus/*.txt", lower=True, workers=2)
    assert_type(words, rp.KeyValues)
    print(words.top(10).to_arrow(), rp.grep("pattern", ["a.txt"], comm=comm, ignore_case=True).num_rows)
    parts = rp.input.splits("corpus/*.csv", count=8, columns=["a"])
    for split in rp.input.share(parts, comm):
        print(split, split.size_bytes, len(split.read()))
    rp.input.read(parts, comm)
    rp.input.aggregate("sales/", ["region"], {"total": ("amount", "sum")}, comm, header=True).to_arrow()
    rp.input.divide("corpus/*.txt", "parts", partitions=4, nodes=["a", "b"])
    print(rp.input.assign(parts, comm.hosts))
    extract(find_pictures(["photographs"]), "vectors.npy", options=HogOptions(), workers=2)


def spark(frame: Any) -> None:
    def program(comm: rp.Communicator, rows: rp.spark.Batches, factor: float) -> float:
        return comm.allreduce(float(rows.to_numpy("x").sum()) * factor)

    print(rp.spark.run(frame, program, 2.0, workers=4))
    print(rp.spark.KMeans(k=3).fit(frame).transform(frame))


def verbs(comm: rp.Communicator, job: rp.Job, x: Floats) -> None:
    assert_type(comm.allreduce(x, op=np.logaddexp), Floats)
    assert_type(comm.scan(x, op=rp.CFunction(0x1000, "mine")), Floats)
    values, places = comm.argmin(x, index=np.arange(len(x)))
    print(values, places, comm.argmax_async(1.5).wait())
    comm.send({"any": "object"}, 1, tag=3)
    received: rp.ReceivedMessage[Any] = comm.recv(tag=rp.ANY_TAG, timeout_s=1.0, envelope=True)
    print(received.value, received.source, received.tag, comm.recv(), comm.sendrecv(x, 1, 0, tag=2))
    assert_type(comm.group([0, 1]), rp.Communicator)
    assert_type(rp.wait_any([comm.barrier_async(), comm.allreduce_async(x)]), int)
    print(list(job.map(len, ["a", "bc"], as_completed=True, in_flight=8)))
    frame = rp.KeyedFrame({"key": [1], "value": [2.0]}, ["key"], nulls="drop")
    assert_type(comm.aggregate(frame, {"mean": ("value", "mean"), "rows": "count"}), rp.KeyedFrame)
    print(frame.to_polars(), frame.to_pandas())
    with rp.lightgbm.network(comm, "voting") as net:
        print(net.params, net.calls)
    print(rp.mpi.COMM_WORLD.allreduce(1, op=rp.mpi.MAX))
    with MPIPoolExecutor(max_workers=2) as executor:
        assert_type(executor.submit(len, "ab").result(), int)
        assert_type(list(executor.map(len, ["a", "bc"], chunksize=2)), list[int])
