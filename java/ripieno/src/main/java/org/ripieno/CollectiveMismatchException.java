package org.ripieno;

/**
 * Ranks called different collectives, or passed different sizes or types. The message lists the calls. The job has
 * ended.
 */
public final class CollectiveMismatchException extends RipienoException {
  private static final long serialVersionUID = 1;

  CollectiveMismatchException(String message) {
    super(message);
  }
}
