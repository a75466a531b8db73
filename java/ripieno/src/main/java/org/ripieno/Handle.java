package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * The handle of a call that runs in the background. Its array or buffer must not be used until {@link #get} has
 * returned. Discarding a handle does not stop the call.
 *
 * @param <A> type of the array or buffer
 */
public final class Handle<A> {
  private final Communicator communicator;
  private final A result;
  private final Values values;
  private final long address;
  private final Cleaner.Cleanable cleanable;
  private boolean isTaken;

  Handle(Communicator communicator, CallArguments call, A result) {
    this.communicator = communicator;
    this.result = result;
    // The native handle keeps the memory until the call has ended.
    values = Values.of(result);
    address = call.start(communicator, values);
    cleanable = NativeCleaner.register(this, address, Native::freeHandle);
  }

  /** Return whether the call has ended, with a result or an exception. */
  public synchronized boolean isDone() {
    return isTaken || Native.isDone(address);
  }

  /**
   * Wait until the call has ended, and return the array or buffer with the result.
   *
   * @throws RipienoException if the call fails
   */
  public synchronized A get() {
    if (!isTaken) {
      Native.join(address);
      Reference.reachabilityFence(communicator);
      values.copyBack();
      values.close();
      isTaken = true;
      cleanable.clean();
    }
    return result;
  }
}
