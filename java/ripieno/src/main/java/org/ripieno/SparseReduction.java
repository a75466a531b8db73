package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * A configured sparse reduction, for any number of reductions over the same indices.
 *
 * <p>Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014.
 */
public final class SparseReduction implements AutoCloseable {
  /** How a reduction is made. */
  public static final class Options {
    private long size = Native.UNSET;
    private String degrees;
    private boolean missingIsZero;
    private double denseAbove = 0.25;

    /** Indices are smaller than this; unless it is set, than what ranks have found to be the largest and one. */
    public Options size(long size) {
      if (size < 0) {
        throw new InputException("size=" + size + ": expected 0 or more");
      }
      this.size = size;
      return this;
    }

    /** How many ranks meet at each layer: {@code direct}, {@code binary} or factors such as {@code 8x4x2}. */
    public Options degrees(String degrees) {
      this.degrees = degrees;
      return this;
    }

    /** Whether indices that no rank contributes are zeros, not an error. */
    public Options missingIsZero(boolean isZero) {
      this.missingIsZero = isZero;
      return this;
    }

    /** From this share of all indices on, a part travels without its indices. */
    public Options denseAbove(double share) {
      this.denseAbove = share;
      return this;
    }
  }

  private final Communicator communicator;
  private final int outCount;
  private final int inCount;
  private final long address;
  private final Cleaner.Cleanable owned;

  SparseReduction(Communicator communicator, long[] outIndices, long[] inIndices, Options options) {
    this.communicator = communicator;
    outCount = outIndices.length;
    inCount = inIndices.length;
    try (Values out = Values.of(outIndices);
        Values in = Values.of(inIndices)) {
      address =
          Native.sparse(
              communicator.address(),
              out.address,
              out.bytes,
              in.address,
              in.bytes,
              options.size,
              options.degrees,
              options.missingIsZero,
              options.denseAbove);
    }
    owned = Owned.by(this, address, Native::freeSparse);
  }

  /**
   * Reduces: called by every rank.
   *
   * @param values a row of {@code width} elements for each of this rank's out-indices
   * @param width elements of a row
   * @return a new array with a row for each in-index, in their order
   */
  public <A> A reduce(A values, int width, Op op) {
    return reduceInto(values, Values.newArray(values, (long) inCount * width), width, op);
  }

  /** The same into an array or a direct buffer that is there. */
  public <A> A reduceInto(A values, A into, int width, Op op) {
    checkRows("values", Values.countOf(values), outCount, width);
    checkRows("into", Values.countOf(into), inCount, width);
    try (Values from = Values.of(values);
        Values to = Values.room(into)) {
      Native.sparseReduce(
          address, from.element, width, op.ordinal(), from.address, from.bytes, to.address, to.bytes);
      to.copyBack();
    }
    Reference.reachabilityFence(this);
    return into;
  }

  /** How many ranks meet at each layer, as in {@code 4x2}. */
  public String degrees() {
    String degrees = Native.sparseDegrees(address);
    Reference.reachabilityFence(this);
    return degrees;
  }

  /** Frees its memory. */
  @Override
  public void close() {
    owned.clean();
    Reference.reachabilityFence(communicator);
  }

  private static void checkRows(String name, long count, long indexCount, int width) {
    if (count != indexCount * width) {
      throw new InputException(
          name + " has " + count + " elements: expected " + indexCount + " rows of " + width + ", one for each index");
    }
  }
}
