package org.ripieno;

import java.io.Serializable;
import java.util.Arrays;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * PageRank by power iteration, on edges that are distributed over ranks.
 *
 * <p>The ranks equal the ranks of {@code rp.PageRank} in Python. A vertex without out-edges jumps to any vertex. Edges
 * without weights count once; the weights of parallel edges add up.
 *
 * <p>The edges of a vertex move to the rank that owns it. An iteration is one sparse reduction of the targets' sums and
 * one allreduce of two numbers.
 *
 * <p>Source: Page, Brin, Motwani and Winograd, "The PageRank citation ranking", Stanford InfoLab, 1999.
 */
public final class PageRank implements Serializable {
  private static final long serialVersionUID = 1;
  private double damping = 0.85;
  private double tol = 1e-12;
  private int maxIter = 1000;

  /** Set the probability that the walk follows an edge instead of jumping; default 0.85. */
  public PageRank setDamping(double damping) {
    if (!(damping >= 0 && damping <= 1)) {
      throw new InputException("damping=" + damping + ": expected 0 to 1");
    }
    this.damping = damping;
    return this;
  }

  /** Set the tolerance: stop when the ranks change by less than this times the number of vertices; default 1e-12. */
  public PageRank setTol(double tol) {
    if (!(tol >= 0)) {
      throw new InputException("tol=" + tol + ": expected 0 or more");
    }
    this.tol = tol;
    return this;
  }

  /** Set the maximum number of iterations; default 1000. */
  public PageRank setMaxIter(int maxIter) {
    if (maxIter < 1) {
      throw new InputException("maxIter=" + maxIter + ": expected 1 or more");
    }
    this.maxIter = maxIter;
    return this;
  }

  /**
   * Compute the ranks. Every rank must call this method, with edges of its own.
   *
   * @param sources the source of each edge, 0 or more
   * @param targets the target of each edge, 0 or more
   * @param weights the weight of each edge, 0 or more; null on every rank for edges without weights
   * @throws InputException on every rank, if an id is negative, a weight is negative or not finite, the lengths differ,
   *     only some ranks have weights, or there are no edges
   */
  public PageRankModel fit(Communicator comm, long[] sources, long[] targets, double[] weights) {
    check(comm, sources, targets, weights);
    Owners owners = new Owners(comm, sources);
    long[] ownSources = owners.deliver(sources);
    long[] ownTargets = owners.deliver(targets);
    double[] ownWeights = weights == null ? null : owners.deliver(weights);

    long[] reached = Owners.distinct(ownTargets);
    long[] received = new Owners(comm, reached).deliver(reached);
    long[] vertices = Owners.distinct(LongStream.concat(Arrays.stream(ownSources), Arrays.stream(received)).toArray());
    Edges edges = new Edges(vertices, reached, ownSources, ownTargets, ownWeights);
    long vertexCount = comm.allreduce(new long[] {vertices.length}, Op.SUM)[0];
    SparseReduction.Options options = new SparseReduction.Options().missingIsZero(true);
    try (SparseReduction reduction = comm.sparse(reached, vertices, options)) {
      return iterate(comm, reduction, edges, vertices, vertexCount);
    }
  }

  private PageRankModel iterate(
      Communicator comm, SparseReduction reduction, Edges edges, long[] vertices, long vertexCount) {
    double uniform = 1.0 / vertexCount;
    double[] ranks = new double[vertices.length];
    Arrays.fill(ranks, uniform);
    double dangling = comm.allreduce(new double[] {edges.danglingMass(ranks)}, Op.SUM)[0];
    double[] sums = new double[vertices.length];
    for (int iteration = 1; ; iteration++) {
      reduction.reduceInto(edges.product(ranks), sums, 1, Op.SUM);
      double error = 0;
      for (int vertex = 0; vertex < ranks.length; vertex++) {
        double next = damping * (sums[vertex] + dangling * uniform) + (1 - damping) * uniform;
        error += Math.abs(next - ranks[vertex]);
        ranks[vertex] = next;
      }
      double[] totals = comm.allreduce(new double[] {error, edges.danglingMass(ranks)}, Op.SUM);
      boolean hasConverged = totals[0] == 0 || totals[0] < vertexCount * tol;
      if (hasConverged || iteration == maxIter) {
        return new PageRankModel(vertices, ranks, iteration, hasConverged);
      }
      dangling = totals[1];
    }
  }

  /** Check the edges of all ranks, so that all of them throw. */
  private static void check(Communicator comm, long[] sources, long[] targets, double[] weights) {
    String[] problems = {
      "an edge has a negative vertex id: expected 0 or more",
      "a weight is negative or not finite: expected a finite weight of 0 or more",
      "sources, targets and weights differ in length: expected one of each for each edge",
      "only some ranks have weights: expected weights on all ranks or on none",
      "there are no edges: expected at least one"
    };
    // The last two entries are counts: ranks with weights, and edges.
    long[] found = new long[problems.length];
    found[0] = LongStream.concat(Arrays.stream(sources), Arrays.stream(targets)).anyMatch(id -> id < 0) ? 1 : 0;
    found[1] = weights != null && Arrays.stream(weights).anyMatch(each -> !(each >= 0 && each < 1 / 0.0)) ? 1 : 0;
    boolean areEqual = sources.length == targets.length && (weights == null || weights.length == sources.length);
    found[2] = areEqual ? 0 : 1;
    found[3] = weights == null ? 0 : 1;
    found[4] = sources.length;
    comm.allreduce(found, Op.SUM);
    found[3] %= comm.size();
    found[4] = found[4] == 0 ? 1 : 0;
    for (int problem = 0; problem < problems.length; problem++) {
      if (found[problem] > 0) {
        throw new InputException(problems[problem]);
      }
    }
  }

  /** The edges from the vertices of this rank to the vertices that they reach. */
  private static final class Edges {
    private final int[] from;
    private final int[] to;

    /** The probability that the walk takes each edge from its source. */
    private final double[] shares;

    private final boolean[] isDangling;
    private final double[] products;

    Edges(long[] vertices, long[] reached, long[] sources, long[] targets, double[] weights) {
      // An edge as one number, so that parallel edges are equal.
      LongStream pairs =
          IntStream.range(0, sources.length)
              .mapToLong(
                  edge ->
                      ((long) Arrays.binarySearch(vertices, sources[edge]) << 32)
                          | Arrays.binarySearch(reached, targets[edge]));
      long[] edges = weights == null ? pairs.sorted().distinct().toArray() : pairs.toArray();
      from = new int[edges.length];
      to = new int[edges.length];
      shares = new double[edges.length];
      double[] out = new double[vertices.length];
      for (int edge = 0; edge < edges.length; edge++) {
        from[edge] = (int) (edges[edge] >>> 32);
        to[edge] = (int) edges[edge];
        shares[edge] = weights == null ? 1 : weights[edge];
        out[from[edge]] += shares[edge];
      }
      isDangling = new boolean[vertices.length];
      for (int vertex = 0; vertex < out.length; vertex++) {
        isDangling[vertex] = out[vertex] == 0;
      }
      for (int edge = 0; edge < edges.length; edge++) {
        shares[edge] = shares[edge] == 0 ? 0 : shares[edge] / out[from[edge]];
      }
      products = new double[reached.length];
    }

    /** Return the rank mass that reaches each target. */
    double[] product(double[] ranks) {
      Arrays.fill(products, 0);
      for (int edge = 0; edge < from.length; edge++) {
        products[to[edge]] += ranks[from[edge]] * shares[edge];
      }
      return products;
    }

    double danglingMass(double[] ranks) {
      double mass = 0;
      for (int vertex = 0; vertex < ranks.length; vertex++) {
        mass += isDangling[vertex] ? ranks[vertex] : 0;
      }
      return mass;
    }
  }
}
