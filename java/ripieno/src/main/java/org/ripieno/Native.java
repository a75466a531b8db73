package org.ripieno;

/**
 * The native methods. Memory addresses point to direct buffers, which the caller keeps reachable until the call has
 * ended. Native objects are freed once, when no thread can use them any more. A {@code number} is the root, the peer or
 * the distance, depending on the collective, as in {@link CallArguments}.
 */
final class Native {
  /** The value of a setting that is not set. */
  static final int UNSET = -1;

  static {
    Library.load();
  }

  private Native() {}

  static native long address(Object directBuffer);

  static native String newToken();

  static native long connect(
      int rank,
      int worldSize,
      String token,
      String host,
      String rack,
      int firstPort,
      int lastPort,
      int links,
      int tls,
      long rendezvousTimeoutMs,
      long heartbeatTimeoutMs,
      Exchange exchange,
      String directory,
      String storeHost,
      int storePort);

  static native void run(
      long communicator,
      int collective,
      int op,
      long number,
      long[] counts,
      long[] inCounts,
      int element,
      long first,
      long firstBytes,
      long second,
      long secondBytes);

  static native long start(
      long communicator,
      int collective,
      int op,
      long number,
      long[] counts,
      long[] inCounts,
      int element,
      long first,
      long firstBytes,
      long second,
      long secondBytes,
      Object owner);

  static native void join(long handle);

  static native boolean isDone(long handle);

  static native void freeHandle(long handle);

  static native void barrier(long communicator);

  static native long split(long communicator, int color, long key);

  static native long group(long communicator, int[] ranks);

  static native int rank(long communicator);

  static native int size(long communicator);

  static native void abort(long communicator, String cause, String traceback);

  static native void close(long communicator);

  static native void free(long communicator);

  static native long sparse(
      long communicator,
      long outIndices,
      long outBytes,
      long inIndices,
      long inBytes,
      long size,
      String degrees,
      boolean missingIsZero,
      double denseAbove);

  static native void sparseReduce(
      long reduction, int element, int width, int op, long values, long valuesBytes, long into, long intoBytes);

  static native String sparseDegrees(long reduction);

  static native void freeSparse(long reduction);

  static native long regroup(
      long communicator,
      long offsets,
      long offsetsBytes,
      long keys,
      long keysBytes,
      int element,
      int width,
      long values,
      long valuesBytes,
      int combine,
      int threads);

  static native void blockSizes(long block, long[] sizes);

  static native void takeBlock(
      long block,
      long offsets,
      long offsetsBytes,
      long keys,
      long keysBytes,
      long counts,
      long countsBytes,
      long values,
      long valuesBytes);

  static native long newRows(int element, int columns);

  static native void addRows(long rows, long address, long bytes);

  static native void addColumns(long rows, long[] addresses, int[] elements, int count);

  static native void freeRows(long rows);

  static native void fitKMeans(
      long communicator,
      long rows,
      double[] weights,
      int k,
      int maxIter,
      double tol,
      long seed,
      int initSteps,
      double[] initialCentroids,
      int threads,
      double[] centroids,
      int[] labels,
      double[] totals);

  static native void solveFactors(
      long starts,
      long startsBytes,
      long columns,
      long columnsBytes,
      long values,
      long valuesBytes,
      long factors,
      long factorsBytes,
      int rank,
      float reg,
      float alpha,
      long gram,
      long gramBytes,
      int conjugateSteps,
      int threads,
      long out,
      long outBytes,
      double[] totals);

  static native void scatterMatrix(
      long factors, long factorsBytes, int rank, double anchor, int threads, long out, long outBytes);
}
