package org.ripieno;

/** A sparse reduction requests indices that no rank contributes. */
public final class MissingIndicesException extends RipienoException {
  private static final long serialVersionUID = 1;

  MissingIndicesException(String message) {
    super(message);
  }
}
