package org.ripieno;

/** The communicator is closed. */
public final class CommunicatorClosedException extends RipienoException {
  private static final long serialVersionUID = 1;

  CommunicatorClosedException(String message) {
    super(message);
  }
}
