package org.ripieno;

/** How rows with equal keys are combined. */
public enum Combine {
  /** One row with the sum. */
  SUM,
  /** One row with the product. */
  PROD,
  /** One row with the minimum of each column. */
  MIN,
  /** One row with the maximum of each column. */
  MAX,
  /** All rows, concatenated. {@link KeyedRows#counts} returns the number of rows per key. */
  CONCAT;

  int number() {
    return this == CONCAT ? Native.UNSET : ordinal();
  }
}
