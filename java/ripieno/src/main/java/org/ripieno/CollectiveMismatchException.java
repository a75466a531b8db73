package org.ripieno;

/** Ranks called different things, or gave different sizes or types; the message says who did what. The job is over. */
public final class CollectiveMismatchException extends RipienoException {
  private static final long serialVersionUID = 1;

  CollectiveMismatchException(String message) {
    super(message);
  }
}
