package org.ripieno;

/** An argument is invalid. The job continues. */
public final class InputException extends RipienoException {
  private static final long serialVersionUID = 1;

  /** Create an exception that states the given value and the expected values. */
  public InputException(String message) {
    super(message);
  }
}
