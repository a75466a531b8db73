package org.ripieno;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.Arrays;

/**
 * One rank's end of a group of ranks, which compute together.
 *
 * <p>Every collective is called by every rank, in the same order, with the same types, operations, roots and, where
 * nothing else is said, sizes; ranks that differ all get a {@link CollectiveMismatchException} that says who called
 * what. If a rank dies, all others get a {@link RankFailedException} with its number.
 *
 * <p>Values are arrays of {@code byte}, {@code short}, {@code int}, {@code long}, {@code float} or {@code double}, or
 * direct buffers of {@code java.nio} in native order, of which the elements from the position to the limit count.
 * Arrays are copied to direct memory and back; buffers are worked on where they are. Results are the same bits on every
 * rank, and those that ranks in Python or Rust get.
 *
 * <p>Several threads may call; calls of one communicator then count in the order in which they come.
 */
public final class Communicator implements AutoCloseable {
  private final long address;
  private final int rank;
  private final int size;
  private final Cleaner.Cleanable owned;

  Communicator(long address, int rank, int size) {
    this.address = address;
    this.rank = rank;
    this.size = size;
    owned = Owned.by(this, address, Native::free);
  }

  /** A rank that is going to meet the others, with more to say than {@link #meet} does. */
  public static Meeting meeting(int rank, int size, String token) {
    return new Meeting(rank, size, token);
  }

  /**
   * Meets the other ranks.
   *
   * @param rank this rank, from 0
   * @param size how many ranks
   * @param token a secret of the job: who knows it, belongs to it
   * @param exchange gives all ranks' strings for this rank's
   * @throws RendezvousException if the ranks do not meet within a minute
   */
  public static Communicator meet(int rank, int size, String token, Exchange exchange) {
    return meeting(rank, size, token).over(exchange);
  }

  /** A new random token, for all ranks of one job. */
  public static String newToken() {
    return Native.newToken();
  }

  /** This rank, from 0. */
  public int rank() {
    return rank;
  }

  /** How many ranks. */
  public int size() {
    return size;
  }

  /**
   * Every rank's values become the combination of all.
   *
   * @param values of the same length and type on every rank; the result is left there
   * @return the same array or buffer
   */
  public <A> A allreduce(A values, Op op) {
    return inPlace(Call.of(Call.ALLREDUCE).op(op), values);
  }

  /** As {@link #allreduce}, but it goes on by itself. */
  public <A> Handle<A> allreduceAsync(A values, Op op) {
    return new Handle<>(this, Call.of(Call.ALLREDUCE).op(op), values);
  }

  /**
   * The root's values become the combination of all. Arrays of others stay as they are; their buffers are scratch.
   *
   * @return the same array or buffer
   */
  public <A> A reduce(A values, Op op, int root) {
    try (Values memory = Values.of(values)) {
      Call.of(Call.REDUCE).op(op).number(root).run(this, memory);
      if (rank == root) {
        memory.copyBack();
      }
    }
    return values;
  }

  /** Every rank's values become the root's. Lengths are the same everywhere. */
  public <A> A broadcast(A values, int root) {
    return inPlace(Call.of(Call.BROADCAST).number(root), values);
  }

  /** As {@link #broadcast}, but it goes on by itself. */
  public <A> Handle<A> broadcastAsync(A values, int root) {
    return new Handle<>(this, Call.of(Call.BROADCAST).number(root), values);
  }

  /** Every rank's values become the combination of those of all ranks up to it. */
  public <A> A scan(A values, Op op) {
    return inPlace(Call.of(Call.SCAN).op(op), values);
  }

  /** Every rank's values become the combination of those of all ranks before it; rank 0 keeps its own. */
  public <A> A exscan(A values, Op op) {
    return inPlace(Call.of(Call.EXSCAN).op(op), values);
  }

  /**
   * Every rank gets the values of all, one after the other in the order of the ranks.
   *
   * @param mine of any length, which may differ from rank to rank
   * @return a new array
   */
  public <A> A allgather(A mine) {
    return allgather(mine, allCounts(Values.countOf(mine)));
  }

  /** As {@link #allgather(Object)}, where every rank knows how many each has. */
  public <A> A allgather(A mine, long[] counts) {
    A all = withOwn(mine, counts);
    return allgatherInto(all, counts);
  }

  /** The same in place: {@code all} holds {@code counts[rank]} of each rank, of which this rank has set its own. */
  public <A> A allgatherInto(A all, long[] counts) {
    return inPlace(Call.of(Call.ALLGATHER).counts(counts), all);
  }

  /** As {@link #allgatherInto}, but it goes on by itself. */
  public <A> Handle<A> allgatherIntoAsync(A all, long[] counts) {
    return new Handle<>(this, Call.of(Call.ALLGATHER).counts(counts), all);
  }

  /**
   * The root gets the values of all, one after the other in the order of the ranks.
   *
   * @param mine of any length, which may differ from rank to rank
   * @return a new array at the root, null elsewhere
   */
  public <A> A gather(A mine, int root) {
    long[] counts = allCounts(Values.countOf(mine));
    A all = withOwn(mine, counts);
    inPlace(Call.of(Call.GATHER).counts(counts).number(root), all);
    return rank == root ? all : null;
  }

  /**
   * Every rank gets its part of the root's values.
   *
   * @param all at the root {@code counts[rank]} for each rank, one after the other; elsewhere an array of the same
   *     type, whose length does not matter
   * @param counts the same on every rank
   * @return a new array
   */
  public <A> A scatter(A all, long[] counts, int root) {
    A whole = rank == root ? all : Values.newArray(all, total(counts));
    try (Values memory = Values.of(whole)) {
      Call.of(Call.SCATTER).counts(counts).number(root).run(this, memory);
      // The root's is only read.
      if (rank != root) {
        memory.copyBack();
      }
    }
    return own(whole, counts);
  }

  /**
   * The values of all ranks are combined, and every rank gets a part of the result.
   *
   * @param values {@code counts[rank]} for each rank, one after the other; they stay as they are, unless in a buffer
   * @param counts the same on every rank
   * @return a new array of {@code counts[rank()]}
   */
  public <A> A reduceScatter(A values, long[] counts, Op op) {
    A mine = Values.newArray(values, total(counts));
    System.arraycopy(values, 0, mine, 0, Math.toIntExact(total(counts)));
    inPlace(Call.of(Call.REDUCE_SCATTER).counts(counts).op(op), mine);
    return own(mine, counts);
  }

  /**
   * Every rank gives each a part, and gets one of each.
   *
   * @param out {@code counts[to]} for each rank, one after the other
   * @param counts of this rank
   * @return what has come, in the order of the ranks
   */
  public <A> A alltoall(A out, long[] counts) {
    long[] inCounts = new long[size];
    long[] ones = new long[size];
    Arrays.fill(ones, 1);
    exchange(counts, ones, inCounts, ones);
    A into = Values.newArray(out, total(inCounts));
    exchange(out, counts, into, inCounts);
    return into;
  }

  /**
   * Every rank gets the block of the one that is so far before it, around the ring.
   *
   * @param block of any length
   * @param distance how far it goes
   * @return a new array
   */
  public <A> A rotate(A block, int distance) {
    long[] length = {Values.countOf(block)};
    long[] inLength = new long[1];
    int around = Math.floorMod(distance, size);
    turn(length, inLength, around);
    A into = Values.newArray(block, inLength[0]);
    turn(block, into, around);
    return into;
  }

  /** Gives values to another rank, which {@link #receive receives} as many of the same type. */
  public void send(Object values, int to) {
    try (Values memory = Values.of(values)) {
      Call.of(Call.SEND).number(to).run(this, memory);
    }
  }

  /** Fills values with those that another rank sends. */
  public <A> A receive(A into, int from) {
    return inPlace(Call.of(Call.RECEIVE).number(from), into);
  }

  /** Returns once every rank has called it. */
  public void barrier() {
    Native.barrier(address);
    Reference.reachabilityFence(this);
  }

  /**
   * Prepares sparse reductions: what each rank contributes is for these indices, and what it wants is for those.
   *
   * @param outIndices of the rows that this rank contributes, in any order
   * @param inIndices of the rows that it wants
   * @throws MissingIndicesException on every rank, if an index is wanted that no rank contributes
   */
  public SparseReduction sparse(long[] outIndices, long[] inIndices) {
    return sparse(outIndices, inIndices, new SparseReduction.Options());
  }

  /** The same with a say in how. */
  public SparseReduction sparse(long[] outIndices, long[] inIndices, SparseReduction.Options options) {
    return new SparseReduction(this, outIndices, inIndices, options);
  }

  /**
   * Sends rows to the homes of their keys, where rows of equal keys become one, or stay side by side.
   *
   * @param rows this rank's, of the same kind of keys, type and width on every rank
   * @return those whose keys are at home at this rank; every key is at one
   */
  public KeyedRows regroup(KeyedRows rows, Combine combine) {
    return regroup(rows, combine, 1);
  }

  /** The same on several threads. */
  public KeyedRows regroup(KeyedRows rows, Combine combine, int threads) {
    return rows.regrouped(this, combine, threads);
  }

  /** Tells all others that this rank cannot go on, and why: their calls end with a {@link RankFailedException}. */
  public void abort(Throwable cause) {
    StringWriter trace = new StringWriter();
    cause.printStackTrace(new PrintWriter(trace));
    String host = System.getenv().getOrDefault("HOSTNAME", "");
    Native.abort(address, host, cause.toString(), trace.toString());
    Reference.reachabilityFence(this);
  }

  /** Leaves the job in good order. Whatever is called afterwards throws {@link CommunicatorClosedException}. */
  @Override
  public void close() {
    Native.close(address);
    Reference.reachabilityFence(this);
  }

  @Override
  public String toString() {
    return "Communicator(rank " + rank + " of " + size + ")";
  }

  long address() {
    return address;
  }

  private <A> A inPlace(Call call, A values) {
    try (Values memory = Values.of(values)) {
      call.run(this, memory);
      memory.copyBack();
    }
    return values;
  }

  private void exchange(Object out, long[] outCounts, Object into, long[] inCounts) {
    between(Call.of(Call.ALLTOALL).counts(outCounts).inCounts(inCounts), out, into);
  }

  private void turn(Object out, Object into, int distance) {
    between(Call.of(Call.ROTATE).number(distance), out, into);
  }

  private void between(Call call, Object out, Object into) {
    try (Values from = Values.of(out);
        Values to = Values.room(into)) {
      call.run(this, from, to);
      to.copyBack();
    }
  }

  private long[] allCounts(long mine) {
    long[] counts = new long[size];
    long[] ones = new long[size];
    Arrays.fill(ones, 1);
    counts[rank] = mine;
    return allgatherInto(counts, ones);
  }

  /** An array for all, with this rank's values in their place. */
  private <A> A withOwn(A mine, long[] counts) {
    A all = Values.newArray(mine, total(counts));
    System.arraycopy(mine, 0, all, Math.toIntExact(before(counts)), Math.toIntExact(counts[rank]));
    return all;
  }

  private <A> A own(A all, long[] counts) {
    A mine = Values.newArray(all, counts[rank]);
    System.arraycopy(all, Math.toIntExact(before(counts)), mine, 0, Math.toIntExact(counts[rank]));
    return mine;
  }

  private long before(long[] counts) {
    checkCounts(counts);
    return Arrays.stream(counts, 0, rank).sum();
  }

  private long total(long[] counts) {
    checkCounts(counts);
    return Arrays.stream(counts).sum();
  }

  private void checkCounts(long[] counts) {
    if (counts.length != size || Arrays.stream(counts).anyMatch(count -> count < 0)) {
      throw new InputException("counts=" + Arrays.toString(counts) + ": expected " + size + " counts, one per rank");
    }
  }
}
