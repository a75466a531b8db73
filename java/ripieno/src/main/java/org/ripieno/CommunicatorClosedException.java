package org.ripieno;

/** The communicator has been closed. */
public final class CommunicatorClosedException extends RipienoException {
  private static final long serialVersionUID = 1;

  CommunicatorClosedException(String message) {
    super(message);
  }
}
