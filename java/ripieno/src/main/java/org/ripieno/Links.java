package org.ripieno;

/** What carries data between ranks of one host. */
public enum Links {
  /** Shared memory where it works, else TCP. */
  AUTO,
  /** TCP. */
  TCP,
  /** Shared memory; a peer that cannot be reached by it is an error. */
  SHARED_MEMORY
}
