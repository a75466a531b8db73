package org.ripieno;

import java.lang.ref.Reference;

/** The arguments of one collective call, apart from its memory. */
final class CallArguments {
  // Codes of the calls in native code.
  static final int BROADCAST = 0;
  static final int REDUCE = 1;
  static final int ALLREDUCE = 2;
  static final int SCAN = 3;
  static final int EXSCAN = 4;
  static final int ALLGATHER = 5;
  static final int REDUCE_SCATTER = 6;
  static final int GATHER = 7;
  static final int SCATTER = 8;
  static final int ALLTOALL = 9;
  static final int ROTATE = 10;
  static final int SEND = 11;
  static final int RECEIVE = 12;

  // Ignored by calls that do not reduce.
  private static final int DEFAULT_OP = Op.SUM.ordinal();

  private final int collective;
  private int op = DEFAULT_OP;
  private long number;
  private long[] counts;
  private long[] inCounts;

  private CallArguments(int collective) {
    this.collective = collective;
  }

  static CallArguments of(int collective) {
    return new CallArguments(collective);
  }

  CallArguments op(Op op) {
    this.op = op.ordinal();
    return this;
  }

  /** Set the root, the peer or the distance, depending on the collective. */
  CallArguments number(long number) {
    this.number = number;
    return this;
  }

  CallArguments counts(long[] counts) {
    this.counts = counts;
    return this;
  }

  CallArguments inCounts(long[] counts) {
    this.inCounts = counts;
    return this;
  }

  /** Run the call from one memory to another; {@link Values#NONE} as the second for a call in place. */
  void run(Communicator communicator, Values out, Values into) {
    check(out);
    Native.run(
        communicator.address(),
        collective,
        op,
        number,
        counts,
        inCounts,
        out.element,
        out.address,
        out.bytes,
        into.address,
        into.bytes);
    keepReachable(communicator, out.owner);
    keepReachable(communicator, into.owner);
  }

  /** Start the call in the background, and return the address of the native handle. */
  long start(Communicator communicator, Values values) {
    check(values);
    long handle =
        Native.start(
            communicator.address(),
            collective,
            op,
            number,
            counts,
            inCounts,
            values.element,
            values.address,
            values.bytes,
            0,
            0,
            values.owner);
    keepReachable(communicator, values.owner);
    return handle;
  }

  /** Check that the operation supports the type. Native code does not check this for a single rank. */
  private void check(Values values) {
    if (op >= Op.AND.ordinal() && values.areFloating()) {
      throw new InputException(Op.values()[op] + " of float or double: expected integers");
    }
  }

  private static void keepReachable(Communicator communicator, Object owner) {
    Reference.reachabilityFence(owner);
    Reference.reachabilityFence(communicator);
  }
}
