package org.ripieno;

/** An argument cannot be right. The job goes on. */
public final class InputException extends RipienoException {
  private static final long serialVersionUID = 1;

  /** With what was given, and what was expected. */
  public InputException(String message) {
    super(message);
  }
}
