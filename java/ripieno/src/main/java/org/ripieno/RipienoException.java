package org.ripieno;

/** Base class of Ripieno's exceptions. The message states what failed, where, and a remedy. */
public class RipienoException extends RuntimeException {
  private static final long serialVersionUID = 1;

  RipienoException(String message) {
    super(message);
  }

  RipienoException(String message, Throwable cause) {
    super(message, cause);
  }
}
