package org.ripieno;

import java.io.Serializable;
import java.lang.ref.Reference;
import java.util.Arrays;

/**
 * K-means by Lloyd's iteration on rows that are partitioned over ranks.
 *
 * <p>Centroids, labels and inertia are bitwise equal to those of {@code rp.KMeans} in Python from the same initial
 * centroids on the same number of ranks. Rows of float are computed in float with sums in double.
 *
 * <p>Cost of an iteration: {@code n·k·d} operations shared by the ranks, and one allreduce of {@code k·(d+1)} doubles.
 * Parameters have the names of Spark's MLlib. The stopping rule and the relocation of empty clusters follow
 * scikit-learn.
 *
 * <p>Sources: Lloyd, "Least squares quantization in PCM", 1982; Bahmani et al., "Scalable k-means++", VLDB 2012.
 */
public final class KMeans implements Serializable {
  private static final long serialVersionUID = 1;

  /** Initialization with k-means||, under its MLlib name. */
  public static final String PARALLEL = "k-means||";

  /** Initialization with random rows. */
  public static final String RANDOM = "random";

  private int k = 2;
  private int maxIter = 300;
  private double tol = 1e-4;
  private long seed;
  private String initMode = PARALLEL;
  private int initSteps = 2;
  private int threads = 1;
  private double[][] initialCentroids;

  /** Set the number of clusters; default 2. */
  public KMeans setK(int k) {
    this.k = checked("k", k, 1);
    return this;
  }

  /** Set the maximum number of iterations; default 300. */
  public KMeans setMaxIter(int maxIter) {
    this.maxIter = checked("maxIter", maxIter, 1);
    return this;
  }

  /**
   * Set the tolerance: stop when the squared shift of the centroids is at most {@code tol} times the mean variance of
   * the columns; default 1e-4.
   */
  public KMeans setTol(double tol) {
    if (!(tol >= 0)) {
      throw new InputException("tol=" + tol + ": expected 0 or more");
    }
    this.tol = tol;
    return this;
  }

  /** Set the seed of the random numbers. The same seed gives the same fit for any number of ranks. */
  public KMeans setSeed(long seed) {
    this.seed = seed;
    return this;
  }

  /** Set the method to find initial centroids: {@code random} rows, or {@code k-means||} (default). */
  public KMeans setInitMode(String initMode) {
    if (!initMode.equals(PARALLEL) && !initMode.equals(RANDOM)) {
      throw new InputException("initMode=" + initMode + ": expected " + PARALLEL + " or " + RANDOM);
    }
    this.initMode = initMode;
    return this;
  }

  /** Set the number of k-means|| rounds that sample initial centroids; default 2. */
  public KMeans setInitSteps(int initSteps) {
    this.initSteps = checked("initSteps", initSteps, 1);
    return this;
  }

  /** Set the number of threads per rank. */
  public KMeans setThreads(int threads) {
    this.threads = checked("threads", threads, 1);
    return this;
  }

  /** Set the initial centroids, equal on every rank. */
  public KMeans setInitialCentroids(double[][] centroids) {
    this.initialCentroids = centroids;
    return this;
  }

  /** Fit the model to rows of weight 1; see the method with weights. */
  public KMeansModel fit(Communicator communicator, Points rows) {
    return fit(communicator, rows, null);
  }

  /**
   * Fit the model. Every rank must call this method.
   *
   * @param rows this rank's rows, with the same column count and type on every rank; may be empty
   * @param weights the weight of each of these rows, 0 or more; null for 1
   * @throws InputException on every rank, if a value is not finite, there are fewer rows than clusters, the initial
   *     centroids do not fit, or squared distances overflow or vanish
   */
  public KMeansModel fit(Communicator communicator, Points rows, double[] weights) {
    if (weights != null && weights.length != rows.count()) {
      throw new InputException(weights.length + " weights of " + rows.count() + " rows: expected one for each row");
    }
    int columns = rows.columns();
    double[] centroids = new double[Math.multiplyExact(k, columns)];
    int[] labels = new int[Math.toIntExact(rows.count())];
    double[] totals = new double[2];
    Native.fitKMeans(
        communicator.address(),
        rows.address(),
        weights,
        k,
        maxIter,
        tol,
        seed,
        initMode.equals(RANDOM) ? 0 : initSteps,
        flatInitialCentroids(columns),
        threads,
        centroids,
        labels,
        totals);
    Reference.reachabilityFence(communicator);
    Reference.reachabilityFence(rows);
    return new KMeansModel(centroids, columns, labels, totals[0], (int) totals[1]);
  }

  private double[] flatInitialCentroids(int columns) {
    if (initialCentroids == null) {
      return null;
    }
    if (initialCentroids.length != k || Arrays.stream(initialCentroids).anyMatch(row -> row.length != columns)) {
      throw new InputException("initialCentroids: expected k=" + k + " rows of " + columns + " values");
    }
    return Arrays.stream(initialCentroids).flatMapToDouble(Arrays::stream).toArray();
  }

  private static int checked(String name, int value, int least) {
    if (value < least) {
      throw new InputException(name + "=" + value + ": expected " + least + " or more");
    }
    return value;
  }
}
