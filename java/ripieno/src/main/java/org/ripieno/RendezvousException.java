package org.ripieno;

/** The ranks could not connect: a rank did not start in time, is unreachable, or has another token. */
public final class RendezvousException extends RipienoException {
  private static final long serialVersionUID = 1;

  RendezvousException(String message) {
    super(message);
  }
}
