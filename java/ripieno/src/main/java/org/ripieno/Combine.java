package org.ripieno;

/** What becomes of rows of equal keys. */
public enum Combine {
  /** One row, the sum of all. */
  SUM,
  /** One row, their product. */
  PROD,
  /** One row, of the smallest of each column. */
  MIN,
  /** One row, of the largest of each column. */
  MAX,
  /** All stay, one after the other; {@link KeyedRows#counts} says how many. */
  CONCAT;

  int number() {
    return this == CONCAT ? Native.UNSET : ordinal();
  }
}
