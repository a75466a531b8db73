package org.ripieno;

/**
 * The thread was interrupted while it waited for other ranks. The other ranks are notified and the job is over. The
 * thread keeps its interrupt status.
 */
public final class InterruptedCallException extends RipienoException {
  private static final long serialVersionUID = 1;

  InterruptedCallException(String message) {
    super(message);
  }
}
