package org.ripieno;

import java.io.Serializable;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/**
 * K-means by Lloyd's iteration on rows that are partitioned over ranks. Every rank assigns its rows, the ranks sum the
 * partial results, and every rank updates its own copy of the centroids.
 *
 * <p>Centroids and labels are bitwise equal to the results of {@code rp.KMeans} in Python from the same initial
 * centroids on the same number of ranks. Rows of float are computed in float with sums in double.
 *
 * <p>Cost of an iteration: {@code n·k·d} operations shared by the ranks, and one allreduce of {@code k·(d+1)} doubles.
 * Parameters have the names of Spark's MLlib. The stopping rule and the relocation of empty clusters follow
 * scikit-learn.
 *
 * <p>Sources: Lloyd, "Least squares quantization in PCM", 1982; Bahmani et al., "Scalable k-means++", VLDB 2012, for
 * the initial centroids.
 */
public final class KMeans implements Serializable {
  private static final long serialVersionUID = 1;

  /** Number of additional entries in the reduced vector. Equal to the Python estimator for bitwise equal results. */
  private static final int EXTRA_ENTRY_COUNT = 6;

  /** Initialization with k-means||, under its MLlib name. */
  public static final String PARALLEL = "k-means||";

  /** Initialization with random rows. */
  public static final String RANDOM = "random";

  private static final int NO_CENTROID = -1;
  private static final long ROW_STREAM = 0x9E3779B97F4A7C15L;

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

  /**
   * Fit the model. Every rank must call this method.
   *
   * @param rows this rank's rows, with the same column count and type on every rank; may be empty
   * @throws InputException on every rank, if a value is not finite, there are fewer rows than clusters, or the initial
   *     centroids do not fit
   */
  public KMeansModel fit(Communicator communicator, Points rows) {
    return new Fit(communicator, rows).run();
  }

  private static int checked(String name, int value, int least) {
    if (value < least) {
      throw new InputException(name + "=" + value + ": expected " + least + " or more");
    }
    return value;
  }

  /** One fit on one rank. */
  private final class Fit {
    private final Communicator communicator;
    private final Points rows;
    private final int columns;
    private final int valueCount;
    private final int count;
    private final long offset;
    private final long total;

    Fit(Communicator communicator, Points rows) {
      this.communicator = communicator;
      this.rows = rows;
      columns = rows.columns();
      valueCount = Math.multiplyExact(k, columns);
      count = Math.toIntExact(rows.count());
      long nonFinite = Native.firstNonFinite(rows.address(), threads);
      long[] gathered = communicator.allgather(new long[] {count, nonFinite, columns, rows.element()});
      long before = 0;
      long all = 0;
      for (int rank = 0; rank < communicator.size(); rank++) {
        before += rank < communicator.rank() ? gathered[4 * rank] : 0;
        all += gathered[4 * rank];
        check(rank, gathered);
      }
      offset = before;
      total = all;
      if (total < k) {
        throw new InputException(total + " rows: expected at least k=" + k);
      }
    }

    private void check(int rank, long[] gathered) {
      if (gathered[4 * rank + 2] != gathered[2] || gathered[4 * rank + 3] != gathered[3]) {
        throw new InputException(
            kindOf(rank, gathered) + ", " + kindOf(0, gathered) + ": expected the same on every rank");
      }
      long nonFinite = gathered[4 * rank + 1];
      if (nonFinite >= 0) {
        throw new InputException(
            "rank " + rank + ", row " + nonFinite / columns + ", column " + nonFinite % columns
                + ": expected a finite number");
      }
    }

    private String kindOf(int rank, long[] gathered) {
      String type = gathered[4 * rank + 3] == Points.FLOAT ? "float" : "double";
      return "rank " + rank + " has " + gathered[4 * rank + 2] + " columns of " + type;
    }

    KMeansModel run() {
      double scaledTol = tol == 0 ? 0 : tol * meanVariance();
      Object centroids =
          initialCentroids == null ? new CentroidSeeding().centroids() : checkedInitialCentroids();
      Native.resetBounds(rows.address());
      int[] labels = new int[count];
      int[] previous = new int[count];
      Arrays.fill(labels, NO_CENTROID);
      double[] distances = new double[count];
      double inertia = 0;
      boolean hasMoved = false;
      int iteration = 0;
      while (iteration < maxIter) {
        iteration++;
        int[] swapped = labels;
        labels = previous;
        previous = swapped;
        double[] sums = new double[valueCount];
        double[] weights = new double[k];
        inertia = pass(centroids, labels, distances, sums, weights);
        double[] reduced = Arrays.copyOf(sums, sums.length + k + EXTRA_ENTRY_COUNT);
        System.arraycopy(weights, 0, reduced, sums.length, k);
        reduced[sums.length + k] = inertia;
        reduced[sums.length + k + 1] = Arrays.equals(labels, previous) ? 0 : 1;
        reduced[sums.length + k + 2] = count;
        communicator.allreduce(reduced, Op.SUM);
        sums = Arrays.copyOf(reduced, sums.length);
        weights = Arrays.copyOfRange(reduced, sums.length, sums.length + k);
        inertia = reduced[sums.length + k];
        boolean hasChanged = reduced[sums.length + k + 1] > 0;
        boolean hasReseeded = relocateEmptyClusters(labels, distances, sums, weights);
        double shift = recenter(centroids, sums, weights);
        hasMoved = hasChanged || hasReseeded;
        if (!hasChanged || shift <= scaledTol) {
          break;
        }
      }
      if (hasMoved) {
        // The centroids have moved since the labels were assigned.
        pass(centroids, labels, distances, new double[valueCount], new double[k]);
        inertia = communicator.allreduce(new double[] {Arrays.stream(distances).sum()}, Op.SUM)[0];
      }
      if (!Double.isFinite(inertia)) {
        throw new InputException("the squared distances overflow: scale the rows");
      }
      return new KMeansModel(centroids, columns, labels, inertia, iteration);
    }

    private Object checkedInitialCentroids() {
      if (initialCentroids.length != k || Arrays.stream(initialCentroids).anyMatch(row -> row.length != columns)) {
        throw new InputException("initialCentroids: expected k=" + k + " rows of " + columns + " values");
      }
      Object centroids = rows.newValues(valueCount);
      for (int at = 0; at < valueCount; at++) {
        set(centroids, at, initialCentroids[at / columns][at % columns]);
      }
      return centroids;
    }

    private double meanVariance() {
      double[] mean = columnSums(new double[0]);
      for (int column = 0; column < columns; column++) {
        mean[column] /= total;
      }
      double[] squares = columnSums(mean);
      return Arrays.stream(squares).map(square -> square / total).sum() / columns;
    }

    private double[] columnSums(double[] mean) {
      double[] sums = new double[columns];
      try (Values from = Values.of(mean);
          Values to = Values.of(sums)) {
        Native.columnSums(rows.address(), from.address, from.bytes, to.address, to.bytes);
        to.copyBack();
      }
      return communicator.allreduce(sums, Op.SUM);
    }

    private double pass(Object centroids, int[] labels, double[] distances, double[] sums, double[] weights) {
      try (Values at = Values.of(centroids);
          Values labelMemory = Values.uninitialized(labels);
          Values far = Values.uninitialized(distances);
          Values sumMemory = Values.uninitialized(sums);
          Values weightMemory = Values.uninitialized(weights)) {
        double inertia =
            Native.pass(
                rows.address(),
                at.address,
                at.bytes,
                labelMemory.address,
                labelMemory.bytes,
                far.address,
                far.bytes,
                sumMemory.address,
                sumMemory.bytes,
                weightMemory.address,
                weightMemory.bytes,
                threads);
        for (Values each : new Values[] {labelMemory, far, sumMemory, weightMemory}) {
          each.copyBack();
        }
        return inertia;
      }
    }

    private double recenter(Object centroids, double[] sums, double[] weights) {
      try (Values at = Values.of(centroids);
          Values sumMemory = Values.of(sums);
          Values weightMemory = Values.of(weights)) {
        double shift =
            Native.recenter(
                at.element,
                at.address,
                at.bytes,
                sumMemory.address,
                sumMemory.bytes,
                weightMemory.address,
                weightMemory.bytes);
        at.copyBack();
        return shift;
      }
    }

    /**
     * Assign the rows that are farthest from their centroids to the empty clusters, in order. Ties go to the lowest row
     * number. Rows at their centroid stay.
     */
    private boolean relocateEmptyClusters(int[] labels, double[] distances, double[] sums, double[] weights) {
      int[] empty = IntStream.range(0, k).filter(cluster -> weights[cluster] == 0).toArray();
      if (empty.length == 0) {
        return false;
      }
      int[] mine = farthest(distances, empty.length);
      double[] far = new double[mine.length];
      long[] numbers = new long[mine.length];
      int[] clusters = new int[mine.length];
      Object points = rows.newValues((long) mine.length * columns);
      for (int at = 0; at < mine.length; at++) {
        far[at] = distances[mine[at]];
        numbers[at] = offset + mine[at];
        clusters[at] = labels[mine[at]];
        System.arraycopy(rows.row(mine[at]), 0, points, at * columns, columns);
      }
      double[] allFar = communicator.allgather(far);
      long[] allNumbers = communicator.allgather(numbers);
      int[] allClusters = communicator.allgather(clusters);
      Object allPoints = communicator.allgather(points);
      Integer[] order = new Integer[allFar.length];
      Arrays.setAll(order, at -> at);
      Arrays.sort(
          order,
          (a, b) ->
              allFar[a] != allFar[b]
                  ? Double.compare(allFar[b], allFar[a])
                  : Long.compare(allNumbers[a], allNumbers[b]));
      int moved = 0;
      while (moved < Math.min(empty.length, order.length) && allFar[order[moved]] > 0) {
        moved++;
      }
      for (int at = 0; at < moved; at++) {
        weights[allClusters[order[at]]] -= 1;
        for (int column = 0; column < columns; column++) {
          sums[allClusters[order[at]] * columns + column] -= get(allPoints, order[at] * columns + column);
        }
      }
      for (int at = 0; at < moved; at++) {
        weights[empty[at]] = 1;
        for (int column = 0; column < columns; column++) {
          sums[empty[at] * columns + column] = get(allPoints, order[at] * columns + column);
        }
      }
      return moved > 0;
    }

    /**
     * Return the local indices of the rows with the largest distances, in descending order; ties go to the first row.
     */
    private int[] farthest(double[] distances, int limit) {
      return IntStream.range(0, count)
          .boxed()
          .sorted(
              (a, b) ->
                  distances[a] != distances[b] ? Double.compare(distances[b], distances[a]) : Integer.compare(a, b))
          .limit(limit)
          .mapToInt(Integer::intValue)
          .toArray();
    }

    private void set(Object values, int at, double value) {
      if (values instanceof float[] floats) {
        floats[at] = (float) value;
      } else {
        ((double[]) values)[at] = value;
      }
    }

    private double get(Object values, int at) {
      return values instanceof float[] floats ? floats[at] : ((double[]) values)[at];
    }

    /** Finds initial centroids: random rows, or k of the candidates that the rounds of k-means|| sample. */
    private final class CentroidSeeding {
      private final double[] distances = new double[count];
      private final int[] closest = new int[count];
      private Object candidates = rows.newValues(0);

      CentroidSeeding() {
        Arrays.fill(distances, Double.POSITIVE_INFINITY);
      }

      Object centroids() {
        if (initMode.equals(RANDOM)) {
          LinkedHashSet<Long> numbers = new LinkedHashSet<>();
          SplittableRandom random = new SplittableRandom(seed);
          while (numbers.size() < k) {
            numbers.add(random.nextLong(total));
          }
          return rowsOf(numbers.stream().mapToLong(Long::longValue).toArray());
        }
        add(rowsOf(new long[] {new SplittableRandom(seed).nextLong(total)}));
        for (int step = 1; step <= initSteps; step++) {
          double cost = communicator.allreduce(new double[] {Arrays.stream(distances).sum()}, Op.SUM)[0];
          if (cost == 0) {
            break;
          }
          add(sampledRows(step, 2.0 * k / cost));
        }
        addMissingCandidates();
        double[] weights = new double[Math.toIntExact(candidateCount())];
        for (int candidate : closest) {
          weights[candidate]++;
        }
        communicator.allreduce(weights, Op.SUM);
        return choose(weights);
      }

      private long candidateCount() {
        return Values.countOf(candidates) / columns;
      }

      /** Return a random number in [0, 1) that depends only on the seed, the step and the row's number. */
      private double draw(int step, int row) {
        long stream = seed + step * ROW_STREAM;
        return new SplittableRandom(stream ^ (offset + row) * ROW_STREAM).nextDouble();
      }

      private Object sampledRows(int step, double scale) {
        int[] sampled =
            IntStream.range(0, count)
                .filter(row -> draw(step, row) < distances[row] * scale)
                .toArray();
        Object mine = rows.newValues((long) sampled.length * columns);
        for (int at = 0; at < sampled.length; at++) {
          System.arraycopy(rows.row(sampled[at]), 0, mine, at * columns, columns);
        }
        return communicator.allgather(mine);
      }

      /** Return the rows with these global numbers, in this order. */
      private Object rowsOf(long[] numbers) {
        double[] found = new double[numbers.length * columns];
        for (int at = 0; at < numbers.length; at++) {
          if (numbers[at] >= offset && numbers[at] < offset + count) {
            Object row = rows.row(numbers[at] - offset);
            for (int column = 0; column < columns; column++) {
              found[at * columns + column] = get(row, column);
            }
          }
        }
        communicator.allreduce(found, Op.SUM);
        Object result = rows.newValues(found.length);
        for (int at = 0; at < found.length; at++) {
          set(result, at, found[at]);
        }
        return result;
      }

      private void add(Object more) {
        int before = Math.toIntExact(candidateCount());
        if (Values.countOf(more) > 0) {
          try (Values centers = Values.of(more);
              Values far = Values.of(distances);
              Values numbers = Values.of(closest)) {
            Native.lowerDistances(
                rows.address(),
                centers.address,
                centers.bytes,
                before,
                far.address,
                far.bytes,
                numbers.address,
                numbers.bytes,
                threads);
            far.copyBack();
            numbers.copyBack();
          }
        }
        Object all = rows.newValues((long) before * columns + Values.countOf(more));
        System.arraycopy(candidates, 0, all, 0, before * columns);
        System.arraycopy(more, 0, all, before * columns, Math.toIntExact(Values.countOf(more)));
        candidates = all;
      }

      /** Add random rows while there are fewer candidates than clusters. */
      private void addMissingCandidates() {
        SplittableRandom random = new SplittableRandom(~seed);
        while (candidateCount() < k) {
          add(rowsOf(random.longs(k - candidateCount(), 0, total).toArray()));
        }
      }

      /**
       * Choose k candidates. The probability of each is proportional to its weight times its squared distance to the
       * chosen candidates.
       */
      private Object choose(double[] weights) {
        SplittableRandom random = new SplittableRandom(seed);
        double[] points = new double[weights.length * columns];
        Arrays.setAll(points, at -> get(candidates, at));
        double[] nearest = new double[weights.length];
        Arrays.fill(nearest, 1);
        Object centroids = rows.newValues(valueCount);
        for (int cluster = 0; cluster < k; cluster++) {
          int next = sampleByWeight(weights, nearest, random);
          System.arraycopy(candidates, next * columns, centroids, cluster * columns, columns);
          for (int candidate = 0; candidate < weights.length; candidate++) {
            double squared = squaredDistance(points, next, candidate);
            nearest[candidate] = cluster == 0 ? squared : Math.min(nearest[candidate], squared);
          }
        }
        return centroids;
      }

      private int sampleByWeight(double[] weights, double[] nearest, SplittableRandom random) {
        double all = 0;
        for (int candidate = 0; candidate < weights.length; candidate++) {
          all += weights[candidate] * nearest[candidate];
        }
        if (all == 0) {
          return random.nextInt(weights.length);
        }
        double left = random.nextDouble() * all;
        int last = 0;
        for (int candidate = 0; candidate < weights.length; candidate++) {
          double share = weights[candidate] * nearest[candidate];
          if (share > 0) {
            last = candidate;
            left -= share;
            if (left < 0) {
              break;
            }
          }
        }
        return last;
      }

      private double squaredDistance(double[] points, int a, int b) {
        double sum = 0;
        for (int column = 0; column < columns; column++) {
          double difference = points[a * columns + column] - points[b * columns + column];
          sum += difference * difference;
        }
        return sum;
      }
    }
  }
}
