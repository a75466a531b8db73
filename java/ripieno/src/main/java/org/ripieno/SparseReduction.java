package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * A configured sparse reduction, for any number of reductions over the same indices.
 *
 * <p>Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014.
 */
public final class SparseReduction implements AutoCloseable {
  /** Options of a sparse reduction. */
  public static final class Options {
    private long size = Native.UNSET;
    private String degrees;
    private boolean missingIsZero;
    private double denseAbove = 0.25;

    /** Set the exclusive upper bound of indices; default: the largest index of all ranks plus one. */
    public Options size(long size) {
      if (size < 0) {
        throw new InputException("size=" + size + ": expected 0 or more");
      }
      this.size = size;
      return this;
    }

    /**
     * Set the number of ranks that communicate at each layer: {@code direct}, {@code binary} or factors such as {@code
     * 8x4x2}.
     */
    public Options degrees(String degrees) {
      this.degrees = degrees;
      return this;
    }

    /** Set whether indices that no rank contributes count as zero instead of an error. */
    public Options missingIsZero(boolean isZero) {
      this.missingIsZero = isZero;
      return this;
    }

    /** Set the density above which a part of the index range is sent without its indices. */
    public Options denseAbove(double share) {
      this.denseAbove = share;
      return this;
    }
  }

  private final Communicator communicator;
  private final int outCount;
  private final int inCount;
  private final long address;
  private final Cleaner.Cleanable cleanable;

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
    cleanable = NativeCleaner.register(this, address, Native::freeSparse);
  }

  /**
   * Run a reduction. Every rank must call this method.
   *
   * @param values a row of {@code width} elements for each of this rank's out-indices
   * @param width elements per row
   * @return a new array with a row for each in-index, in the same order
   */
  public <A> A reduce(A values, int width, Op op) {
    return reduceInto(values, Values.newArray(values, (long) inCount * width), width, op);
  }

  /** Run a reduction into an existing array or direct buffer. */
  public <A> A reduceInto(A values, A into, int width, Op op) {
    checkRows("values", Values.countOf(values), outCount, width);
    checkRows("into", Values.countOf(into), inCount, width);
    try (Values from = Values.of(values);
        Values to = Values.uninitialized(into)) {
      Native.sparseReduce(
          address, from.element, width, op.ordinal(), from.address, from.bytes, to.address, to.bytes);
      to.copyBack();
    }
    Reference.reachabilityFence(this);
    return into;
  }

  /** Return the number of ranks that communicate at each layer, as in {@code 4x2}. */
  public String degrees() {
    String degrees = Native.sparseDegrees(address);
    Reference.reachabilityFence(this);
    return degrees;
  }

  /** Free the native memory. */
  @Override
  public void close() {
    cleanable.clean();
    Reference.reachabilityFence(communicator);
  }

  private static void checkRows(String name, long count, long indexCount, int width) {
    if (count != indexCount * width) {
      throw new InputException(
          name + " has " + count + " elements: expected " + indexCount + " rows of " + width + ", one for each index");
    }
  }
}
