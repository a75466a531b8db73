package org.ripieno;

/**
 * Thrown if the thread is interrupted while it waits for other ranks. The other ranks are notified, and the job ends.
 * The thread keeps its interrupt status.
 */
public final class InterruptedCallException extends RipienoException {
  private static final long serialVersionUID = 1;

  InterruptedCallException(String message) {
    super(message);
  }
}
