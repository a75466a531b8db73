package org.ripieno;

/** Something that Ripieno could not do; the message says what, where, and what to do. */
public class RipienoException extends RuntimeException {
  private static final long serialVersionUID = 1;

  RipienoException(String message) {
    super(message);
  }

  RipienoException(String message, Throwable cause) {
    super(message, cause);
  }
}
