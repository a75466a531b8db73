package org.ripieno;

/** An engine has no room for the ranks of a job. */
public final class TooFewSlotsException extends RipienoException {
  private static final long serialVersionUID = 1;
  private final int needed;
  private final int total;

  /**
   * With the numbers in its message.
   *
   * @param engine its name
   * @param needed slots that the job takes
   * @param total slots that there are
   * @param advice how to get more, in the words of the engine
   */
  public TooFewSlotsException(String engine, int needed, int total, String advice) {
    super(engine + " has too few slots for " + needed + " ranks: " + total + " in all; " + advice);
    this.needed = needed;
    this.total = total;
  }

  /** Slots that the job takes. */
  public int needed() {
    return needed;
  }

  /** Slots that there are. */
  public int total() {
    return total;
  }
}
