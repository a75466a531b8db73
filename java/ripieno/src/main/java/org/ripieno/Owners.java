package org.ripieno;

import java.util.Arrays;

/**
 * Delivers elements to the ranks that own their ids. Each id belongs to one rank, which depends only on the id and the
 * number of ranks.
 */
final class Owners {
  private final Communicator comm;

  /** The position of each element when the elements are ordered by owner; elements of one owner keep their order. */
  private final int[] places;

  /** The number of elements for each owner. */
  private final long[] counts;

  /**
   * Find the owners of elements.
   *
   * @param ids the id of each element of this rank
   */
  Owners(Communicator comm, long[] ids) {
    this.comm = comm;
    int size = comm.size();
    counts = new long[size];
    int[] owners = new int[ids.length];
    for (int at = 0; at < ids.length; at++) {
      // Fibonacci hashing spreads ids with a common stride.
      owners[at] = (int) Math.floorMod((ids[at] * 0x9E3779B97F4A7C15L) >>> 32, (long) size);
      counts[owners[at]]++;
    }
    int[] next = new int[size];
    for (int owner = 1; owner < size; owner++) {
      next[owner] = next[owner - 1] + (int) counts[owner - 1];
    }
    places = new int[ids.length];
    for (int at = 0; at < ids.length; at++) {
      places[at] = next[owners[at]]++;
    }
  }

  /** Return distinct ids, ascending. */
  static long[] distinct(long[] ids) {
    return Arrays.stream(ids).sorted().distinct().toArray();
  }

  /**
   * Send a value of each element to its owner.
   *
   * @param values an array with one value for each element
   * @return the values that this rank owns, ordered by sender
   */
  <A> A deliver(A values) {
    A ordered = Values.newArray(values, places.length);
    for (int at = 0; at < places.length; at++) {
      System.arraycopy(values, at, ordered, places[at], 1);
    }
    return comm.alltoall(ordered, counts);
  }

  /** Return the number of elements that each rank delivers to this rank. */
  long[] receivedCounts() {
    long[] ones = new long[counts.length];
    Arrays.fill(ones, 1);
    return comm.alltoall(counts, ones);
  }

  /** Return the position of each element in the order of owners. Answers of the owners arrive in this order. */
  int[] places() {
    return places;
  }
}
