package org.ripieno;

/**
 * The thread was interrupted while it waited for other ranks, which have been told. The job is over; the thread is
 * still marked as interrupted.
 */
public final class InterruptedCallException extends RipienoException {
  private static final long serialVersionUID = 1;

  InterruptedCallException(String message) {
    super(message);
  }
}
