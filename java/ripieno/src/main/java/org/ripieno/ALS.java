package org.ripieno;

import java.io.Serializable;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/**
 * Alternating least squares on ratings that are distributed over ranks: the products of user and item factors
 * approximate the ratings.
 *
 * <p>{@code rp.ALS} in Python has the same objectives, solvers and defaults; its random initial factors differ.
 * Explicit ratings are fitted with a penalty of {@code reg} times the squared factors of the user and the item of each
 * rating. Implicit ratings are counts: rated pairs have the target 1 and the weight {@code 1 + alpha * count}, all
 * other pairs have the target 0 and the weight 1. The factors have the same bits for any number of ranks.
 *
 * <p>The ratings of a user and of an item move to the rank that owns it. Before each half of an iteration, a rank
 * receives the factors that its ratings refer to. Cost of an iteration, shared by the ranks: {@code 2·rank²} operations
 * per rating and {@code rank³/3} per user and item.
 *
 * <p>Sources: Zhou, Wilkinson, Schreiber and Pan, "Large-scale parallel collaborative filtering for the Netflix prize",
 * AAIM 2008, section 3; Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008,
 * eq. 3 to 5.
 */
public final class ALS implements Serializable {
  private static final long serialVersionUID = 1;
  private static final int RANK_MAX = 10_000;

  /** From this rank on, conjugate gradients need fewer operations. */
  private static final int CG_RANK = 16;

  private static final int CG_STEPS = 3;
  private static final float[] NONE = {};

  private int rank = 32;
  private int maxIter = 10;
  private double reg = 0.05;
  private double alpha = 1;
  private boolean isImplicit;
  private long seed;
  private int threads = 1;

  /** Set the number of factors of each user and item; default 32. */
  public ALS setRank(int rank) {
    if (rank < 1 || rank > RANK_MAX) {
      throw new InputException("rank=" + rank + ": expected 1 to " + RANK_MAX);
    }
    this.rank = rank;
    return this;
  }

  /** Set the number of iterations; default 10. */
  public ALS setMaxIter(int maxIter) {
    this.maxIter = checked("maxIter", maxIter);
    return this;
  }

  /** Set the weight of the penalty on the squares of all factors, above 0; default 0.05. */
  public ALS setReg(double reg) {
    this.reg = checked("reg", reg);
    return this;
  }

  /** Set the weight per unit of an implicit rating, above 0; default 1. */
  public ALS setAlpha(double alpha) {
    this.alpha = checked("alpha", alpha);
    return this;
  }

  /**
   * Set whether ratings are counts of observed actions instead of explicit scores; default false. With a rank of at
   * least 16, three steps of conjugate gradients then replace the solution of the normal equations.
   */
  public ALS setImplicit(boolean isImplicit) {
    this.isImplicit = isImplicit;
    return this;
  }

  /** Set the seed of the initial factors; default 0. */
  public ALS setSeed(long seed) {
    this.seed = seed;
    return this;
  }

  /** Set the number of threads per rank; default 1. */
  public ALS setThreads(int threads) {
    this.threads = checked("threads", threads);
    return this;
  }

  /**
   * Fit the factors. Every rank must call this method, with ratings of its own.
   *
   * @param users the id of the user of each rating
   * @param items the id of the item of each rating
   * @param ratings finite numbers; 0 or more if ratings are implicit. Implicit ratings of the same pair are added;
   *     explicit ones must not repeat a pair.
   * @throws InputException on every rank, if the lengths differ, a rating is invalid, there are no ratings, a pair
   *     repeats, or the factors are not finite
   */
  public ALSModel fit(Communicator comm, long[] users, long[] items, float[] ratings) {
    check(comm, users, items, ratings);
    Side userSide = new Side(comm, users, items, ratings);
    Side itemSide = new Side(comm, items, users, ratings);
    long repeatedCount = isImplicit ? 0 : userSide.repeatedCount;
    refuse(comm, repeatedCount, "ratings repeat a pair of user and item: expected one rating per pair");
    Transfer usersOut = new Transfer(comm, userSide, itemSide);
    Transfer itemsOut = new Transfer(comm, itemSide, userSide);
    double[] objectives = new double[maxIter];
    float[] userFactors = new float[Math.multiplyExact(userSide.ids.length, rank)];
    float[] itemFactors = initialFactors(itemSide.ids);
    for (int iteration = 0; iteration < maxIter; iteration++) {
      float[] gram = isImplicit ? gram(comm, itemSide, itemFactors) : NONE;
      double penalty = solve(userSide, itemsOut.run(itemFactors, rank), gram, userFactors)[1];
      gram = isImplicit ? gram(comm, userSide, userFactors) : NONE;
      double[] totals = solve(itemSide, usersOut.run(userFactors, rank), gram, itemFactors);
      double[] objective = {totals[0] + totals[1] + penalty};
      objectives[iteration] = comm.allreduce(objective, Op.SUM)[0];
      if (!Double.isFinite(objectives[iteration])) {
        throw new InputException("the factors are not finite: scale the ratings, or raise reg=" + reg);
      }
    }
    return new ALSModel(userSide.ids, userFactors, itemSide.ids, itemFactors, rank, objectives);
  }

  /**
   * Solve for the factors of this rank's rows of a side, starting from their current values, given the factors that
   * their ratings refer to. Return the squared errors and the penalty.
   */
  private double[] solve(Side side, float[] table, float[] gram, float[] factors) {
    double[] totals = new double[2];
    try (Values starts = Values.of(side.starts);
        Values columns = Values.of(side.columns);
        Values values = Values.of(side.values);
        Values from = Values.of(table);
        Values products = Values.of(gram);
        Values into = Values.of(factors)) {
      Native.solveFactors(
          starts.address,
          starts.bytes,
          columns.address,
          columns.bytes,
          values.address,
          values.bytes,
          from.address,
          from.bytes,
          rank,
          (float) reg,
          (float) alpha,
          products.address,
          products.bytes,
          isImplicit && rank >= CG_RANK ? CG_STEPS : 0,
          threads,
          into.address,
          into.bytes,
          totals);
      into.copyBack();
    }
    return totals;
  }

  /** Return the scatter matrix of all ranks' factors of a side. */
  private float[] gram(Communicator comm, Side side, float[] factors) {
    double[] peak = {0};
    for (float factor : factors) {
      // Unlike Math.max(), this comparison also finds NaN.
      peak[0] = Math.abs(factor) <= peak[0] ? peak[0] : Math.abs(factor);
    }
    comm.allreduce(peak, Op.MAX);
    if (!Double.isFinite(peak[0])) {
      throw new InputException("the factors are not finite: scale the ratings, or raise reg=" + reg);
    }
    // Choose 1.5 times a power of two above any sum of products.
    double bound = side.totalRows * peak[0] * peak[0];
    double anchor = Math.scalb(1.5, bound == 0 ? 0 : Math.getExponent(bound) + 1);
    double[] sums = new double[rank * rank];
    try (Values from = Values.of(factors);
        Values into = Values.uninitialized(sums)) {
      Native.scatterMatrix(from.address, from.bytes, rank, anchor, threads, into.address, into.bytes);
      into.copyBack();
    }
    comm.allreduce(sums, Op.SUM);
    float[] gram = new float[sums.length];
    for (int at = 0; at < sums.length; at++) {
      gram[at] = (float) sums[at];
    }
    return gram;
  }

  /** Return random factors that depend only on the ids and the seed: absolute normal numbers. */
  private float[] initialFactors(long[] ids) {
    float[] factors = new float[Math.multiplyExact(ids.length, rank)];
    long ofSeed = new SplittableRandom(seed).nextLong();
    for (int row = 0; row < ids.length; row++) {
      // Seeds that differ little give overlapping sequences, so the id is mixed first.
      SplittableRandom random = new SplittableRandom(new SplittableRandom(ofSeed ^ ids[row]).nextLong());
      for (int column = 0; column < rank; column++) {
        factors[row * rank + column] = (float) (Math.abs(random.nextGaussian()) / Math.sqrt(rank));
      }
    }
    return factors;
  }

  /** Check the ratings of all ranks, so that all of them throw. */
  private void check(Communicator comm, long[] users, long[] items, float[] ratings) {
    boolean areEqual = users.length == items.length && users.length == ratings.length;
    refuse(comm, areEqual ? 0 : 1, "ranks have users, items and ratings of different lengths: expected one of each");
    long invalidCount = 0;
    for (float rating : ratings) {
      invalidCount += Float.isFinite(rating) && !(isImplicit && rating < 0) ? 0 : 1;
    }
    String expected = isImplicit ? "a finite number of 0 or more" : "a finite number";
    refuse(comm, invalidCount, "ratings are invalid: expected " + expected);
    if (comm.allreduce(new long[] {ratings.length}, Op.SUM)[0] == 0) {
      throw new InputException("there are no ratings: expected at least one");
    }
  }

  private static void refuse(Communicator comm, long count, String problem) {
    long total = comm.allreduce(new long[] {count}, Op.SUM)[0];
    if (total > 0) {
      throw new InputException(total + " " + problem);
    }
  }

  private static int checked(String name, int value) {
    if (value < 1) {
      throw new InputException(name + "=" + value + ": expected 1 or more");
    }
    return value;
  }

  private static double checked(String name, double value) {
    if (!(value > 0 && (float) value > 0 && Float.isFinite((float) value))) {
      throw new InputException(name + "=" + value + ": expected a number above 0, in the range of float");
    }
    return value;
  }

  /** The users or the items that this rank owns, with their ratings in compressed row form. */
  private static final class Side {
    /** The ids of the rows, ascending. */
    final long[] ids;

    /** The number of rows of all ranks. */
    final long totalRows;

    /** The start of each row's ratings, and the end of the last row's ratings. */
    final long[] starts;

    /** The row in the received factors that each rating refers to. The ratings of a row are ordered by id. */
    final int[] columns;

    final float[] values;

    /** The number of ratings that repeat a pair of row and column. The ratings of a pair are added. */
    final long repeatedCount;

    /** The ids of the other side that the ratings refer to, ascending, and their owners. */
    final long[] needed;

    final Owners owners;

    Side(Communicator comm, long[] rowIds, long[] columnIds, float[] ratings) {
      Owners rowOwners = new Owners(comm, rowIds);
      long[] ownRows = rowOwners.deliver(rowIds);
      long[] ownColumns = rowOwners.deliver(columnIds);
      float[] ownRatings = rowOwners.deliver(ratings);
      ids = Owners.distinct(ownRows);
      totalRows = comm.allreduce(new long[] {ids.length}, Op.SUM)[0];
      needed = Owners.distinct(ownColumns);
      owners = new Owners(comm, needed);

      int[] rows = positions(ownRows, ids);
      int[] neededRows = positions(ownColumns, needed);
      int[] order = IntStream.range(0, rows.length).toArray();
      order = sorted(sorted(order, neededRows, needed.length), rows, ids.length);
      starts = new long[ids.length + 1];
      int[] targets = new int[order.length];
      float[] sums = new float[order.length];
      int count = 0;
      for (int at = 0, end; at < order.length; at = end) {
        int row = rows[order[at]];
        int column = neededRows[order[at]];
        end = at + 1;
        while (end < order.length && rows[order[end]] == row && neededRows[order[end]] == column) {
          end++;
        }
        targets[count] = owners.places()[column];
        sums[count++] = sum(ownRatings, order, at, end);
        starts[row + 1] = count;
      }
      columns = Arrays.copyOf(targets, count);
      values = Arrays.copyOf(sums, count);
      repeatedCount = order.length - count;
    }

    private static int[] positions(long[] ids, long[] distinct) {
      return Arrays.stream(ids).mapToInt(id -> Arrays.binarySearch(distinct, id)).toArray();
    }

    /** Return elements in the order of their keys; elements with equal keys keep their order. */
    private static int[] sorted(int[] elements, int[] keys, int keyCount) {
      int[] next = new int[keyCount + 1];
      for (int key : keys) {
        next[key + 1]++;
      }
      Arrays.parallelPrefix(next, Integer::sum);
      int[] sorted = new int[elements.length];
      for (int element : elements) {
        sorted[next[keys[element]]++] = element;
      }
      return sorted;
    }

    /** Add ratings in ascending order, so that the sum does not depend on the ranks that passed them. */
    private static float sum(float[] ratings, int[] order, int begin, int end) {
      if (end == begin + 1) {
        return ratings[order[begin]];
      }
      float[] values = new float[end - begin];
      for (int at = begin; at < end; at++) {
        values[at - begin] = ratings[order[at]];
      }
      Arrays.sort(values);
      double sum = 0;
      for (float value : values) {
        sum += value;
      }
      return (float) sum;
    }
  }

  /** Sends the factors of a side to the ranks that need them for their ratings of the other side. */
  private static final class Transfer {
    private final Communicator comm;

    /** The rows that each rank needs, ordered by rank. */
    private final int[] sentRows;

    private final long[] sentCounts;

    /**
     * Request factors.
     *
     * @param from the side of the factors
     * @param to the side with the ratings that refer to them
     */
    Transfer(Communicator comm, Side from, Side to) {
      this.comm = comm;
      sentRows = Side.positions(to.owners.deliver(to.needed), from.ids);
      sentCounts = to.owners.receivedCounts();
    }

    /** Return the factors that this rank needs, given the factors that it owns. */
    float[] run(float[] factors, int rank) {
      float[] rows = new float[Math.multiplyExact(sentRows.length, rank)];
      for (int at = 0; at < sentRows.length; at++) {
        System.arraycopy(factors, sentRows[at] * rank, rows, at * rank, rank);
      }
      return comm.alltoall(rows, Arrays.stream(sentCounts).map(count -> count * rank).toArray());
    }
  }
}
