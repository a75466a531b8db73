package org.ripieno;

/** The ranks did not meet: one did not come in time, cannot be reached, or has another token. */
public final class RendezvousException extends RipienoException {
  private static final long serialVersionUID = 1;

  RendezvousException(String message) {
    super(message);
  }
}
