"""`rp.spark.KMeans` on real Spark has the centers of `rp.KMeans` and the interface of Spark ML."""

from __future__ import annotations

import itertools
import time

import cloudpickle
import numpy as np
import pytest
import ripieno as rp
import spark_frame_programs as programs
from ripieno.errors import InputError, TooFewSlots

pytest.importorskip("pyspark", reason="pip install 'ripieno[spark]'")

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import ClusteringEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from ripieno.spark import KMeans, KMeansModel
from ripieno.spark.kmeans_params import DECLARED, KMeansArguments, snake_case

cloudpickle.register_pickle_by_value(programs)

WORKERS, CLUSTERS = 2, 5
POINTS = np.random.default_rng(7).random((200, 3)) + np.repeat(np.arange(5.0), 40)[:, None]
WEIGHTS = np.random.default_rng(8).random(200)
SCHEMA = "id int, point {}, weight double"


def frame(spark, *, points=POINTS, kind="array<double>", partitions=WORKERS):
    """Return rows in their order, divided among partitions as `rp.KMeans` divides them among workers."""
    cuts = [len(points) * part // partitions for part in range(partitions + 1)]
    shares = spark.sparkContext.parallelize(list(itertools.pairwise(cuts)), partitions)
    rows = shares.flatMap(lambda share: [(at, points[at].tolist(), float(WEIGHTS[at])) for at in range(*share)])
    return spark.createDataFrame(rows, SCHEMA.format(kind))


def of_rows(spark, *rows, kind="array<double>"):
    """Return a frame of the given rows, each with weight 1."""
    return spark.createDataFrame([(at, row, 1.0) for at, row in enumerate(rows)], SCHEMA.format(kind))


def reference(points=POINTS, weights=None, **parameters):
    return rp.KMeans(CLUSTERS, workers=WORKERS, n_init=1, **parameters).fit(points, sample_weight=weights)


@pytest.fixture(scope="module")
def model():
    """Return a model with the centers of `rp.KMeans`, as a fitted or loaded model has them."""
    return KMeansModel(reference(random_state=3).cluster_centers_).setFeaturesCol("point")


@pytest.mark.parametrize(("dtype", "init"), [(np.float64, "k-means||"), (np.float32, "random")])
def test_on_the_same_shares_centers_have_the_bits_of_rp_kmeans(spark_local, dtype, init):
    points, kind = POINTS.astype(dtype), {np.float64: "array<double>", np.float32: "array<float>"}[dtype]
    rows = frame(spark_local, points=points, kind=kind)

    found = KMeans(k=CLUSTERS, init_mode=init, seed=3, workers=WORKERS, features_col="point").fit(rows)

    expected = reference(points, init=init, random_state=3, max_iter=20)
    assert found.centers.dtype == dtype
    assert np.array_equal(found.centers, expected.cluster_centers_)
    assert found.summary.trainingCost == expected.inertia_
    assert found.summary.numIter == expected.n_iter_


def test_vectors_weights_and_first_centers_count_as_in_rp_kmeans(spark_local):
    rows = frame(spark_local, partitions=3)
    rows = rows.select(array_to_vector("point").alias("a.vector"), rows.weight.alias("a_vector"))
    start = POINTS[::40] + 0.1

    estimator = KMeans(
        k=CLUSTERS, initial_centers=start, workers=WORKERS, features_col="a.vector", weight_col="a_vector"
    )
    found = estimator.fit(rows)

    expected = reference(weights=WEIGHTS, init=start)
    np.testing.assert_allclose(found.centers, expected.cluster_centers_, rtol=1e-12)
    assert found.summary.trainingCost == pytest.approx(expected.inertia_, rel=1e-12)


def test_the_summary_contains_results_and_times_of_a_fit(spark_local):
    found = KMeans(k=CLUSTERS, tol=0.0, max_iter=3, init_mode="random", workers=WORKERS, features_col="point").fit(
        frame(spark_local)
    )

    summary = found.summary
    assert found.hasSummary and summary.k == CLUSTERS and sum(summary.clusterSizes) == len(POINTS)
    assert 1 <= summary.numIter <= 3
    costs = [each.inertia for each in summary.iterations]
    assert costs == sorted(costs, reverse=True) and costs[-1] >= summary.trainingCost > 0
    for each in summary.iterations:
        assert len(each.compute_s) == len(each.communication_s) == WORKERS
        assert min(each.compute_s) > 0 and min(each.communication_s) > 0
    assert 0 < sum(each.seconds for each in summary.iterations) < summary.report.total_s


@pytest.mark.parametrize("kind", ["array<double>", "array<float>", "vector"])
def test_transform_adds_the_nearest_center_to_every_row(spark_local, model, kind):
    rows = frame(spark_local, kind=kind.replace("vector", "array<double>"), partitions=3)
    if kind == "vector":
        rows = rows.withColumn("point", array_to_vector("point"))

    found = model.transform(rows)

    assert found.dtypes == [*rows.dtypes, ("prediction", "int")]
    got = found.orderBy("id").collect()
    distances = np.linalg.norm(POINTS[:, None] - model.centers, axis=2)
    assert [row.prediction for row in got] == distances.argmin(axis=1).tolist()
    assert [row.id for row in got] == list(range(len(POINTS)))
    np.testing.assert_allclose(np.array([list(row.point) for row in got]), POINTS, rtol=1e-6)


def test_transform_keeps_columns_of_any_name_and_their_metadata(spark_local, model):
    rows = frame(spark_local, points=POINTS[:3]).withMetadata("point", {"known": 1})
    rows = rows.select("point", "id", "id").toDF("a.point", "twice", "twice")

    found = model.copy({model.featuresCol: "a.point"}).transform(rows)

    assert found.columns == ["a.point", "twice", "twice", "prediction"]
    assert found.schema[0].metadata == {"known": 1}
    assert [row[-1] for row in found.collect()] == [model.predict(point) for point in POINTS[:3]]


def test_predict_takes_one_point(model):
    for cluster, center in enumerate(model.clusterCenters()):
        assert model.predict(Vectors.dense(center)) == model.predict(center.tolist()) == cluster
    with pytest.raises(InputError, match="points have 2 values, but the model was fitted on 3"):
        model.predict([1.0, 2.0])
    with pytest.raises(InputError, match="expected one point of finite numbers"):
        model.predict([1.0, 2.0, np.nan])


def test_parameters_have_names_of_spark_and_of_python(spark_local):
    estimator = KMeans(k=7, maxIter=9, init_mode="random", weightCol="w")

    assert (estimator.getK(), estimator.getMaxIter(), estimator.getInitMode()) == (7, 9, "random")
    assert not estimator.isSet("tol") and estimator.getTol() == 1e-4
    assert not estimator.isDefined("workers")
    assert estimator.setParams(workers=3, max_iter=11) is estimator.setK(8)
    explained = {param.name: value for param, value in estimator.extractParamMap().items()}
    assert explained.items() >= {
        "k": 8, "maxIter": 11, "tol": 1e-4, "seed": 0, "initMode": "random", "weightCol": "w", "workers": 3,
        "featuresCol": "features", "predictionCol": "prediction", "slotsTimeoutS": 10.0,
        "threadModel": "fork-join", "assign": "exact", "bounds": "auto",
    }.items()  # fmt: skip
    # Type checkers read the names from a class.
    assert set(KMeansArguments.__annotations__) >= set(map(snake_case, DECLARED))
    copied = estimator.copy({estimator.k: 4})
    assert (copied.getK(), estimator.getK(), copied.uid) == (4, 8, estimator.uid)
    with pytest.raises(TypeError, match="both of its names: max_iter, maxIter"):
        KMeans(max_iter=1, maxIter=2)
    with pytest.raises(TypeError, match="n_clusters"):
        KMeans(n_clusters=3)


def test_only_the_columns_of_a_model_can_be_set(model):
    setters = {name for name in dir(model) if name.startswith("set")}

    assert setters == {"set", "setFeaturesCol", "setPredictionCol"}
    assert model.copy().setPredictionCol("cluster").getPredictionCol() == "cluster"
    assert {"setK", "setMaxIter", "setFeaturesCol"} < set(dir(KMeans))


def test_estimators_and_models_are_saved_and_loaded(spark_local, model, tmp_path):
    estimator = KMeans(k=2, initial_centers=[[0.1, 1.0], [2.0, 1 / 3]], max_iter=5)
    estimator.save(f"file://{tmp_path}/estimator")
    loaded = KMeans.load(f"file://{tmp_path}/estimator")
    assert loaded.uid == estimator.uid
    assert {p.name: v for p, v in loaded.extractParamMap().items()} == {
        p.name: v for p, v in estimator.extractParamMap().items()
    }

    where = f"file://{tmp_path}/model"
    for kept in (model, KMeansModel(model.centers.astype(np.float32)[::-1].copy()).setPredictionCol("cluster")):
        kept.write().overwrite().save(where)
        loaded = KMeansModel.load(where)
        assert loaded.uid == kept.uid and loaded.getPredictionCol() == kept.getPredictionCol()
        assert loaded.centers.dtype == kept.centers.dtype and np.array_equal(loaded.centers, kept.centers)
        assert not loaded.hasSummary
        with pytest.raises(InputError, match=f"{kept.uid} was loaded"):
            _ = loaded.summary
    with pytest.raises(Exception, match="already exists"):
        model.save(where)


def test_it_is_a_stage_of_pipelines_that_are_saved_and_loaded(spark_local, tmp_path):
    points = POINTS.copy()
    points[::9] = 0  # VectorAssembler makes sparse vectors of these
    rows = frame(spark_local, points=points).selectExpr("id", "point[0] as x", "point[1] as y", "point[2] as z")
    stages = [VectorAssembler(inputCols=["x", "y", "z"], outputCol="features"), KMeans(k=CLUSTERS, workers=WORKERS)]
    Pipeline(stages=stages).save(f"file://{tmp_path}/pipeline")

    fitted = Pipeline.load(f"file://{tmp_path}/pipeline").fit(rows)
    fitted.save(f"file://{tmp_path}/fitted")
    loaded = PipelineModel.load(f"file://{tmp_path}/fitted")

    assert np.array_equal(fitted.stages[1].centers, reference(points, random_state=0, max_iter=20).cluster_centers_)
    first, second = (each.transform(rows).orderBy("id").select("prediction").collect() for each in (fitted, loaded))
    assert first == second and {row.prediction for row in first} == set(range(CLUSTERS))


def test_cross_validation_chooses_among_its_parameters(spark_local):
    blobs = np.repeat(np.array([[0.0, 0.0], [9.0, 9.0]]), 30, axis=0) + np.random.default_rng(0).random((60, 2))
    # Two simultaneous fits do not have enough slots.
    estimator = KMeans(workers=3, slots_timeout_s=100)
    grid = ParamGridBuilder().addGrid(estimator.k, [6, 2]).build()
    rows = frame(spark_local, points=blobs).select(array_to_vector("point").alias("features"))

    chosen = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=ClusteringEvaluator(), numFolds=2, seed=1, parallelism=2
    ).fit(rows)

    assert chosen.bestModel.getK() == len(chosen.bestModel.centers) == 2


def test_during_a_fit_a_rank_has_its_rows_once():
    with rp.launch(workers=1) as job:
        ((one, seen),) = job.run(programs.arrow_bytes_of_a_fit, 1, KMeans(max_iter=1)._options())
        ((three, copied),) = job.run(programs.arrow_bytes_of_a_fit, 3, KMeans(max_iter=1)._options())

    assert one >= 1000 * 4 * 8 and three >= 3 * 1000 * 4 * 8
    # Arrow itself holds a little more.
    assert 1000 * 4 * 8 <= seen < 2 * 1000 * 4 * 8, "the array is a view of the only batch"
    assert copied < 1000 * 4 * 8, "the array is a copy"


def test_a_fit_waits_for_slots_up_to_its_timeout(spark_local):
    estimator = KMeans(workers=WORKERS, slots_timeout_s=0.2, features_col="point")
    rows = frame(spark_local)

    with rp.launch(engine="spark", workers=3):
        begin = time.monotonic()
        with pytest.raises(TooFewSlots) as caught:
            estimator.fit(rows)
        waited_s = time.monotonic() - begin

    assert (caught.value.free, caught.value.total) == (1, 4)
    assert 0.2 <= waited_s < KMeans().getSlotsTimeoutS()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"features_col": "vector"}, "features_col='vector': there is no such column, only id, point, weight"),
        ({"features_col": "id"}, "features_col='id': expected vectors or arrays of numbers, found int"),
        ({"weight_col": "point"}, r"weight_col='point': expected a column of numbers, found array<double>"),
        ({"k": 0}, "k=0: expected a whole number >= 1"),
        ({"max_iter": 0}, "max_iter=0: expected a whole number >= 1"),
        ({"tol": -1.0}, "tol=-1.0: expected a number >= 0"),
        ({"slots_timeout_s": float("nan")}, "slots_timeout_s=nan: expected a number of seconds >= 0"),
        ({"seed": -1}, "seed=-1: expected a whole number from 0 to 4294967295"),
        ({"init_mode": "best"}, r"init_mode='best': expected one of k-means\|\|, k-means\+\+, random"),
        ({"thread_model": "join"}, "thread_model='join': expected one of fork-join, bsp"),
        ({"k": 3, "initial_centers": [[1.0, 2.0, 3.0]]}, "initial_centers: expected k=3 rows of one length, there are"),
    ],
)
def test_wrong_parameters_and_columns_are_reported_before_anything_starts(spark_local, parameters, message):
    with pytest.raises(InputError, match=message):
        KMeans(**{"features_col": "point", "workers": 1000, **parameters}).fit(frame(spark_local))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0], None], "null"),
        ([[1.0, 2.0], [1.0, float("nan")]], "column 1: NaN where a finite number is expected"),
        ([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]], "n_samples=3 should be >= n_clusters=5"),
    ],
)
def test_wrong_rows_are_reported_by_the_rank_that_has_them(spark_local, rows, message):
    with pytest.raises(InputError, match=message):
        KMeans(k=5, workers=WORKERS, features_col="point").fit(of_rows(spark_local, *rows))


def test_a_model_refuses_columns_that_it_cannot_use(spark_local, model):
    rows = frame(spark_local)
    with pytest.raises(InputError, match="features_col='nothing': there is no such column"):
        model.copy({model.featuresCol: "nothing"}).transform(rows)
    with pytest.raises(InputError, match="prediction_col='id': this column exists already"):
        model.copy({model.predictionCol: "id"}).transform(rows)
    with pytest.raises(Exception, match="points have 2 values, but the model was fitted on 3"):
        model.transform(of_rows(spark_local, [1.0, 2.0])).collect()
