"""Provide iterative map-reduce: a driver, and map tasks that stay with their partitions on the workers.

    with rp.MapReduce(map=assign, reduce=recenter, workers=4, name="kmeans", checkpoint="checkpoints") as job:
        job.cache(points, tasks=32)
        centroids = job.resume(start)
        for iteration in job.iterations(20):
            job.broadcast(centroids)
            centroids = job.step()

Source: Zhang et al., "Social image clustering with iterative MapReduce (Twister)", section 3.
"""

from ripieno.launch.job.accumulators import Accumulator
from ripieno.mapreduce.driver import MapReduce
from ripieno.mapreduce.object_pairs import ObjectPairs
from ripieno.mapreduce.statistics import Stage, StepStatistics
from ripieno.mapreduce.tasks import Task

__all__ = ["Accumulator", "MapReduce", "ObjectPairs", "Stage", "StepStatistics", "Task"]
