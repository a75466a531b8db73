package org.ripieno;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.Arrays;

/**
 * One rank's handle to a group of ranks.
 *
 * <p>Every rank calls every collective in the same order, with the same types, operations and roots. Sizes are equal
 * unless stated otherwise. If ranks differ, all of them get a {@link CollectiveMismatchException} that lists the calls.
 * If a rank dies, all other ranks get a {@link RankFailedException} with its number.
 *
 * <p>Values are arrays of {@code byte}, {@code short}, {@code int}, {@code long}, {@code float} or {@code double}, or
 * direct buffers of {@code java.nio} in native order. A call uses the elements of a buffer from its position to its
 * limit. Arrays are copied to direct memory and back; buffers are used in place. Results are bitwise equal on every
 * rank, also on ranks in Python or Rust.
 *
 * <p>Several threads may call one communicator; its calls are ordered by their arrival.
 */
public final class Communicator implements AutoCloseable {
  private final long address;
  private final int rank;
  private final int size;
  private final Cleaner.Cleanable cleanable;

  Communicator(long address) {
    this.address = address;
    rank = Native.rank(address);
    size = Native.size(address);
    cleanable = NativeCleaner.register(this, address, Native::free);
  }

  /** Return a builder that connects to the other ranks, with more settings than {@link #connect}. */
  public static Rendezvous rendezvous(int rank, int size, String token) {
    return new Rendezvous(rank, size, token);
  }

  /**
   * Connect to the other ranks.
   *
   * @param rank this rank, from 0
   * @param size number of ranks
   * @param token the secret of the job, with at least 128 random bits, such as {@link #newToken} returns; a process
   *     that knows it belongs to the job
   * @param exchange takes this rank's string and returns the strings of all ranks
   * @throws RendezvousException if the ranks do not connect within one minute
   */
  public static Communicator connect(int rank, int size, String token, Exchange exchange) {
    return rendezvous(rank, size, token).over(exchange);
  }

  /**
   * Connect to the other ranks.
   *
   * @deprecated Use {@link #connect}.
   */
  @Deprecated
  public static Communicator meet(int rank, int size, String token, Exchange exchange) {
    return connect(rank, size, token, exchange);
  }

  /** Return a new random token, for all ranks of one job. */
  public static String newToken() {
    return Native.newToken();
  }

  /** Return this rank, from 0. */
  public int rank() {
    return rank;
  }

  /** Return the number of ranks. */
  public int size() {
    return size;
  }

  /**
   * Combine the values of all ranks; every rank gets the result.
   *
   * @param values of the same length and type on every rank; receives the result
   * @return the same array or buffer
   */
  public <A> A allreduce(A values, Op op) {
    return inPlace(CallArguments.of(CallArguments.ALLREDUCE).op(op), values);
  }

  /** Start {@link #allreduce} in the background. */
  public <A> Handle<A> allreduceAsync(A values, Op op) {
    return new Handle<>(this, CallArguments.of(CallArguments.ALLREDUCE).op(op), values);
  }

  /**
   * Combine the values of all ranks; the root gets the result. Arrays of other ranks stay unchanged, their buffers are
   * scratch memory.
   *
   * @return the same array or buffer
   */
  public <A> A reduce(A values, Op op, int root) {
    try (Values memory = Values.of(values)) {
      CallArguments.of(CallArguments.REDUCE).op(op).number(root).run(this, memory, Values.NONE);
      if (rank == root) {
        memory.copyBack();
      }
    }
    return values;
  }

  /** Copy the root's values to every rank. Lengths are equal on all ranks. */
  public <A> A broadcast(A values, int root) {
    return inPlace(CallArguments.of(CallArguments.BROADCAST).number(root), values);
  }

  /** Start {@link #broadcast} in the background. */
  public <A> Handle<A> broadcastAsync(A values, int root) {
    return new Handle<>(this, CallArguments.of(CallArguments.BROADCAST).number(root), values);
  }

  /** Replace every rank's values with the combination over all ranks up to it. */
  public <A> A scan(A values, Op op) {
    return inPlace(CallArguments.of(CallArguments.SCAN).op(op), values);
  }

  /** Replace every rank's values with the combination over all lower ranks; rank 0 keeps its own values. */
  public <A> A exscan(A values, Op op) {
    return inPlace(CallArguments.of(CallArguments.EXSCAN).op(op), values);
  }

  /**
   * Concatenate the values of all ranks, ordered by rank; every rank gets the result.
   *
   * @param mine of any length, which may differ between ranks
   * @return a new array
   */
  public <A> A allgather(A mine) {
    return allgather(mine, allCounts(Values.countOf(mine)));
  }

  /** Run {@link #allgather(Object)} when every rank knows the element count of every rank. */
  public <A> A allgather(A mine, long[] counts) {
    A all = withOwnPart(mine, counts);
    return allgatherInto(all, counts);
  }

  /**
   * Gather in place: {@code all} has {@code counts[rank]} elements per rank, and this rank has set its own elements.
   */
  public <A> A allgatherInto(A all, long[] counts) {
    return inPlace(CallArguments.of(CallArguments.ALLGATHER).counts(counts), all);
  }

  /** Start {@link #allgatherInto} in the background. */
  public <A> Handle<A> allgatherIntoAsync(A all, long[] counts) {
    return new Handle<>(this, CallArguments.of(CallArguments.ALLGATHER).counts(counts), all);
  }

  /**
   * Concatenate the values of all ranks, ordered by rank; the root gets the result.
   *
   * @param mine of any length, which may differ between ranks
   * @return a new array at the root, null elsewhere
   */
  public <A> A gather(A mine, int root) {
    long[] counts = allCounts(Values.countOf(mine));
    A all = withOwnPart(mine, counts);
    inPlace(CallArguments.of(CallArguments.GATHER).counts(counts).number(root), all);
    return rank == root ? all : null;
  }

  /**
   * Send each rank its part of the root's values.
   *
   * @param all at the root {@code counts[rank]} elements for each rank, one after the other; elsewhere an array of the
   *     same type with any length
   * @param counts the same on every rank
   * @return a new array with this rank's part
   */
  public <A> A scatter(A all, long[] counts, int root) {
    A buffer = rank == root ? all : Values.newArray(all, total(counts));
    try (Values memory = Values.of(buffer)) {
      CallArguments.of(CallArguments.SCATTER).counts(counts).number(root).run(this, memory, Values.NONE);
      // The root's array is only read.
      if (rank != root) {
        memory.copyBack();
      }
    }
    return ownPart(buffer, counts);
  }

  /**
   * Combine the values of all ranks and send each rank its part of the result.
   *
   * @param values {@code counts[rank]} elements for each rank, one after the other; an array stays unchanged, a buffer
   *     does not
   * @param counts the same on every rank
   * @return a new array of {@code counts[rank()]} elements
   */
  public <A> A reduceScatter(A values, long[] counts, Op op) {
    A mine = Values.newArray(values, total(counts));
    System.arraycopy(values, 0, mine, 0, Math.toIntExact(total(counts)));
    inPlace(CallArguments.of(CallArguments.REDUCE_SCATTER).counts(counts).op(op), mine);
    return ownPart(mine, counts);
  }

  /**
   * Send a part of the values to every rank and receive a part from every rank.
   *
   * @param out {@code counts[to]} elements for each rank, one after the other
   * @param counts the element counts that this rank sends
   * @return the received values, ordered by rank
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
   * Send a block to the rank {@code distance} positions ahead in the ring, and receive one from the rank that far
   * behind.
   *
   * @param block of any length
   * @param distance the number of positions in the ring
   * @return a new array
   */
  public <A> A rotate(A block, int distance) {
    long[] length = {Values.countOf(block)};
    long[] inLength = new long[1];
    int offset = Math.floorMod(distance, size);
    rotateInto(length, inLength, offset);
    A into = Values.newArray(block, inLength[0]);
    rotateInto(block, into, offset);
    return into;
  }

  /** Send values to another rank, which must {@link #receive receive} the same number of elements of the same type. */
  public void send(Object values, int to) {
    try (Values memory = Values.of(values)) {
      CallArguments.of(CallArguments.SEND).number(to).run(this, memory, Values.NONE);
    }
  }

  /** Fill {@code into} with the values that another rank sends. */
  public <A> A receive(A into, int from) {
    return inPlace(CallArguments.of(CallArguments.RECEIVE).number(from), into);
  }

  /** Wait until every rank has called this method. */
  public void barrier() {
    Native.barrier(address);
    Reference.reachabilityFence(this);
  }

  /**
   * Prepare sparse reductions between the indices that ranks contribute and the indices that they request.
   *
   * @param outIndices of the rows that this rank contributes, in any order
   * @param inIndices of the rows that this rank requests
   * @throws MissingIndicesException on every rank, if a requested index is contributed by no rank
   */
  public SparseReduction sparse(long[] outIndices, long[] inIndices) {
    return sparse(outIndices, inIndices, new SparseReduction.Options());
  }

  /** Prepare sparse reductions with options. */
  public SparseReduction sparse(long[] outIndices, long[] inIndices, SparseReduction.Options options) {
    return new SparseReduction(this, outIndices, inIndices, options);
  }

  /**
   * Send rows to the owners of their keys. The owner combines rows with equal keys or keeps them all.
   *
   * @param rows this rank's rows; key type, element type and width are equal on every rank
   * @return the rows with the keys that this rank owns; every key has exactly one owner
   */
  public KeyedRows regroup(KeyedRows rows, Combine combine) {
    return regroup(rows, combine, 1);
  }

  /** Regroup rows with several threads. */
  public KeyedRows regroup(KeyedRows rows, Combine combine, int threads) {
    return rows.regrouped(this, combine, threads);
  }

  /** Split the ranks by color; ranks of one color keep their order. */
  public Communicator split(int color) {
    return split(color, 0);
  }

  /**
   * Split the ranks by color. Every rank must call this method. The ranks of one color form a communicator, which uses
   * the links of this one and is closed with the communicator of all ranks.
   *
   * @param color the same on the ranks of a new communicator; a negative color stands for no communicator
   * @param key orders the ranks of a color; ranks with equal keys keep their order
   * @return the communicator of this rank's color, or null for a negative color
   */
  public Communicator split(int color, long key) {
    long part = Native.split(address, color, key);
    Reference.reachabilityFence(this);
    return part == 0 ? null : new Communicator(part);
  }

  /**
   * Create the communicator of some ranks. Only these ranks call this method, with equal arguments. The new
   * communicator uses the links of this one and is closed with the communicator of all ranks.
   *
   * @param ranks ranks of this communicator, each once and with this rank, in their new order
   * @throws InputException if the ranks are invalid
   */
  public Communicator group(int... ranks) {
    Communicator group = new Communicator(Native.group(address, ranks));
    Reference.reachabilityFence(this);
    return group;
  }

  /** Report to all ranks that this rank cannot continue. Their calls end with a {@link RankFailedException}. */
  public void abort(Throwable cause) {
    StringWriter trace = new StringWriter();
    cause.printStackTrace(new PrintWriter(trace));
    Native.abort(address, cause.toString(), trace.toString());
    Reference.reachabilityFence(this);
  }

  /** Leave the job normally. Later calls throw {@link CommunicatorClosedException}. */
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

  private <A> A inPlace(CallArguments call, A values) {
    try (Values memory = Values.of(values)) {
      call.run(this, memory, Values.NONE);
      memory.copyBack();
    }
    return values;
  }

  private void exchange(Object out, long[] outCounts, Object into, long[] inCounts) {
    run(CallArguments.of(CallArguments.ALLTOALL).counts(outCounts).inCounts(inCounts), out, into);
  }

  private void rotateInto(Object out, Object into, int distance) {
    run(CallArguments.of(CallArguments.ROTATE).number(distance), out, into);
  }

  private void run(CallArguments call, Object out, Object into) {
    try (Values from = Values.of(out);
        Values to = Values.uninitialized(into)) {
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

  /** Return an array for all ranks' values, with this rank's values in place. */
  private <A> A withOwnPart(A mine, long[] counts) {
    A all = Values.newArray(mine, total(counts));
    System.arraycopy(mine, 0, all, Math.toIntExact(before(counts)), Math.toIntExact(counts[rank]));
    return all;
  }

  private <A> A ownPart(A all, long[] counts) {
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
