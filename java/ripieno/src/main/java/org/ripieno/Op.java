package org.ripieno;

/**
 * How elements of ranks are combined. Floating-point minima and maxima are NaN if any element is NaN. Integers wrap
 * around.
 */
public enum Op {
  /** Addition. */
  SUM,
  /** Multiplication. */
  PROD,
  /** Minimum. */
  MIN,
  /** Maximum. */
  MAX,
  /** Bitwise and of integers. */
  AND,
  /** Bitwise or of integers. */
  OR,
  /** Bitwise exclusive or of integers. */
  XOR
}
