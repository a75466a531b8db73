package org.ripieno;

/** The kind of links between ranks of one host. */
public enum Links {
  /** Shared memory where it works, TCP otherwise. */
  AUTO,
  /** TCP. */
  TCP,
  /** Shared memory only; failure to set it up is an error. */
  SHARED_MEMORY
}
