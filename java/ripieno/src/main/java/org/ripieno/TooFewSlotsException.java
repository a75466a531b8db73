package org.ripieno;

/** An engine has too few slots for the ranks of a job. */
public final class TooFewSlotsException extends RipienoException {
  private static final long serialVersionUID = 1;
  private final int needed;
  private final int total;

  /**
   * Create an exception that states the numbers in its message.
   *
   * @param engine name of the engine
   * @param needed slots that the job needs
   * @param total slots that exist
   * @param advice how to get more slots, in the terms of the engine
   */
  public TooFewSlotsException(String engine, int needed, int total, String advice) {
    super(engine + " has too few slots for " + needed + " ranks: " + total + " in all; " + advice);
    this.needed = needed;
    this.total = total;
  }

  /** Return the number of slots that the job needs. */
  public int needed() {
    return needed;
  }

  /** Return the number of slots that exist. */
  public int total() {
    return total;
  }
}
