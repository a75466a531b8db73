package org.ripieno.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.lit;

import java.util.List;
import java.util.stream.DoubleStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.ml.Estimator;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.param.DoubleParam;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.LongParam;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.param.ParamValidators;
import org.apache.spark.ml.util.DefaultParamsReadable;
import org.apache.spark.ml.util.DefaultParamsWritable;
import org.apache.spark.ml.util.Identifiable$;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.ripieno.Communicator;
import org.ripieno.InputException;
import org.ripieno.KMeans;
import org.ripieno.KMeansModel;
import org.ripieno.Op;
import org.ripieno.Points;

/**
 * K-means as a Spark ML estimator, on ranks that communicate: {@code new
 * RipienoKMeans().setK(1000).setWorkers(8).fit(df)}.
 *
 * <p>Parameters have the names and meanings of {@code org.apache.spark.ml.clustering.KMeans}. {@code workers}, {@code
 * threads} and {@code elementType} are additional.
 */
public class RipienoKMeans extends Estimator<RipienoKMeansModel> implements DefaultParamsWritable {
  private static final long serialVersionUID = 1;
  private static final String FLOAT = "float";
  private static final String DOUBLE = "double";

  private final String uid;
  private final IntParam k;
  private final IntParam maxIter;
  private final DoubleParam tol;
  private final LongParam seed;
  private final Param<String> initMode;
  private final IntParam initSteps;
  private final IntParam workers;
  private final IntParam threads;
  private final Param<String> elementType;
  private final Param<String> featuresCol;
  private final Param<String> predictionCol;
  private final Param<String> weightCol;

  /** Create an estimator with this name. */
  public RipienoKMeans(String uid) {
    this.uid = uid;
    k = new IntParam(uid, "k", "number of clusters", ParamValidators.gtEq(1));
    maxIter = new IntParam(uid, "maxIter", "maximum number of iterations", ParamValidators.gtEq(1));
    tol = new DoubleParam(uid, "tol", "maximum squared shift, relative to the mean variance", ParamValidators.gtEq(0));
    seed = new LongParam(uid, "seed", "seed of the random numbers");
    initMode = new Param<>(uid, "initMode", "method to find initial centroids: k-means|| or random");
    initSteps = new IntParam(uid, "initSteps", "number of rounds of k-means||", ParamValidators.gtEq(1));
    workers = new IntParam(uid, "workers", "number of ranks; 0 means one per partition", ParamValidators.gtEq(0));
    threads = new IntParam(uid, "threads", "threads per rank", ParamValidators.gtEq(1));
    elementType = new Param<>(uid, "elementType", "element type of the computation: float or double");
    featuresCol = new Param<>(uid, "featuresCol", "input column of vectors");
    predictionCol = new Param<>(uid, "predictionCol", "output column of labels");
    weightCol = new Param<>(uid, "weightCol", "input column of the weights of rows");
    setDefault(k, 2);
    setDefault(maxIter, 20);
    setDefault(tol, 1e-4);
    setDefault(seed, 0L);
    setDefault(initMode, KMeans.PARALLEL);
    setDefault(initSteps, 2);
    setDefault(workers, 0);
    setDefault(threads, 1);
    setDefault(elementType, DOUBLE);
    setDefault(featuresCol, "features");
    setDefault(predictionCol, "prediction");
  }

  /** Create an estimator with a random name. */
  public RipienoKMeans() {
    this(Identifiable$.MODULE$.randomUID("ripieno-kmeans"));
  }

  /** Return a reader of saved estimators. */
  public static MLReader<RipienoKMeans> read() {
    return new EstimatorReader().read();
  }

  /** Load a saved estimator. */
  public static RipienoKMeans load(String path) {
    return read().load(path);
  }

  @Override
  public RipienoKMeansModel fit(Dataset<?> dataset) {
    transformSchema(dataset.schema());
    boolean isWeighted = isDefined(weightCol);
    Column weight = isWeighted ? col($(weightCol)).cast(DataTypes.DoubleType) : lit(1.0);
    JavaRDD<Row> rows = dataset.select(col($(featuresCol)), weight).toJavaRDD();
    int requestedWorkers = (Integer) $(workers);
    KMeans kmeans =
        new KMeans()
            .setK((Integer) $(k))
            .setMaxIter((Integer) $(maxIter))
            .setTol((Double) $(tol))
            .setSeed((Long) $(seed))
            .setInitMode($(initMode))
            .setInitSteps((Integer) $(initSteps))
            .setThreads((Integer) $(threads));
    boolean areFloats = $(elementType).equals(FLOAT);
    List<RankResult> results =
        Ripieno.run(
            rows,
            requestedWorkers == 0 ? rows.getNumPartitions() : requestedWorkers,
            (communicator, own) -> {
              Row first = own.hasNext() ? own.next() : null;
              int columns = columns(communicator, first == null ? null : (Vector) first.get(0));
              DoubleStream.Builder weights = DoubleStream.builder();
              try (Points points = areFloats ? Points.ofFloats(columns) : Points.ofDoubles(columns)) {
                for (Row row = first; row != null; row = own.hasNext() ? own.next() : null) {
                  points.add(((Vector) row.get(0)).toArray());
                  if (isWeighted) {
                    // A missing weight is refused with its row.
                    weights.add(row.isNullAt(1) ? Double.NaN : row.getDouble(1));
                  }
                }
                KMeansModel model = kmeans.fit(communicator, points, isWeighted ? weights.build().toArray() : null);
                // The result of one rank suffices.
                double[][] centroids = communicator.rank() == 0 ? model.centroids() : null;
                return new RankResult(centroids, model.inertia(), model.iterationCount());
              }
            });
    RankResult result = results.get(0);
    RipienoKMeansModel model =
        new RipienoKMeansModel(uid, result.centroids, result.inertia, result.iterationCount, dataset);
    return copyValues(model.setParent(this), ParamMap.empty());
  }

  /** Return the column count of all ranks' rows; a rank may have no rows. */
  private static int columns(Communicator communicator, Vector first) {
    int[] columns = {first == null ? 0 : first.size()};
    communicator.allreduce(columns, Op.MAX);
    if (columns[0] == 0) {
      throw new InputException("there are no rows, or rows without columns");
    }
    return columns[0];
  }

  @Override
  public StructType transformSchema(StructType schema) {
    String type = $(elementType);
    if (!type.equals(FLOAT) && !type.equals(DOUBLE)) {
      throw new IllegalArgumentException("elementType=" + type + ": expected float or double");
    }
    return TableColumns.withPrediction(schema, $(featuresCol), $(predictionCol));
  }

  @Override
  public RipienoKMeans copy(ParamMap extra) {
    return defaultCopy(extra);
  }

  @Override
  public String uid() {
    return uid;
  }

  /** Number of clusters; default 2. */
  public IntParam k() {
    return k;
  }

  /** Maximum number of iterations; default 20. */
  public IntParam maxIter() {
    return maxIter;
  }

  /**
   * Stop when the squared shift of the centroids is at most this times the mean variance of the columns; default 1e-4.
   */
  public DoubleParam tol() {
    return tol;
  }

  /** Seed of the random numbers; default 0. */
  public LongParam seed() {
    return seed;
  }

  /** Method to find initial centroids, k-means|| or random; default k-means||. */
  public Param<String> initMode() {
    return initMode;
  }

  /** Rounds of k-means||; default 2. */
  public IntParam initSteps() {
    return initSteps;
  }

  /** Number of ranks; default 0, which means one per partition. */
  public IntParam workers() {
    return workers;
  }

  /** Threads per rank; default 1. */
  public IntParam threads() {
    return threads;
  }

  /** Element type of the computation, float or double; default double. */
  public Param<String> elementType() {
    return elementType;
  }

  /** The input column of vectors; default "features". */
  public Param<String> featuresCol() {
    return featuresCol;
  }

  /** The output column of labels; default "prediction". */
  public Param<String> predictionCol() {
    return predictionCol;
  }

  /** The input column of the weights of rows, numbers of 0 or more; not set by default, so each row has weight 1. */
  public Param<String> weightCol() {
    return weightCol;
  }

  public RipienoKMeans setK(int value) {
    return (RipienoKMeans) set(k, value);
  }

  public RipienoKMeans setMaxIter(int value) {
    return (RipienoKMeans) set(maxIter, value);
  }

  public RipienoKMeans setTol(double value) {
    return (RipienoKMeans) set(tol, value);
  }

  public RipienoKMeans setSeed(long value) {
    return (RipienoKMeans) set(seed, value);
  }

  public RipienoKMeans setInitMode(String value) {
    return (RipienoKMeans) set(initMode, value);
  }

  public RipienoKMeans setInitSteps(int value) {
    return (RipienoKMeans) set(initSteps, value);
  }

  public RipienoKMeans setWorkers(int value) {
    return (RipienoKMeans) set(workers, value);
  }

  public RipienoKMeans setThreads(int value) {
    return (RipienoKMeans) set(threads, value);
  }

  public RipienoKMeans setElementType(String value) {
    return (RipienoKMeans) set(elementType, value);
  }

  public RipienoKMeans setFeaturesCol(String value) {
    return (RipienoKMeans) set(featuresCol, value);
  }

  public RipienoKMeans setPredictionCol(String value) {
    return (RipienoKMeans) set(predictionCol, value);
  }

  public RipienoKMeans setWeightCol(String value) {
    return (RipienoKMeans) set(weightCol, value);
  }

  private static final class EstimatorReader implements DefaultParamsReadable<RipienoKMeans> {}

  /** The result of a rank. */
  private static final class RankResult implements java.io.Serializable {
    private static final long serialVersionUID = 1;
    private final double[][] centroids;
    private final double inertia;
    private final int iterationCount;

    RankResult(double[][] centroids, double inertia, int iterationCount) {
      this.centroids = centroids;
      this.inertia = inertia;
      this.iterationCount = iterationCount;
    }
  }
}
