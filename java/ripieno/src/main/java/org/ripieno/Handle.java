package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * A call that goes on by itself. Until {@link #get} has returned, its array or buffer is not to be used. Who drops a
 * handle does not end the call.
 *
 * @param <A> what the call works on
 */
public final class Handle<A> {
  private final Communicator communicator;
  private final A result;
  private final Values values;
  private final long address;
  private final Cleaner.Cleanable owned;
  private boolean isTaken;

  Handle(Communicator communicator, Call call, A result) {
    this.communicator = communicator;
    this.result = result;
    // The memory goes back once the call has ended.
    values = Values.of(result);
    address = call.start(communicator, values);
    owned = Owned.by(this, address, Native::freeHandle);
  }

  /** Whether the call has ended, well or not. */
  public synchronized boolean isDone() {
    return isTaken || Native.isDone(address);
  }

  /**
   * Waits for the end, and gives the array or buffer, with the result in it.
   *
   * @throws RipienoException as the call itself
   */
  public synchronized A get() {
    if (!isTaken) {
      Native.join(address);
      Reference.reachabilityFence(communicator);
      values.copyBack();
      values.close();
      isTaken = true;
      owned.clean();
    }
    return result;
  }
}
