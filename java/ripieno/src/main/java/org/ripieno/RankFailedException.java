package org.ripieno;

/** A rank has died, hung or given up; every rank of the job gets this. The job is over. */
public final class RankFailedException extends RipienoException {
  private static final long serialVersionUID = 1;
  private final int rank;
  private final String host;
  private final String reason;
  private final String traceback;

  RankFailedException(String message, int rank, String host, String reason, String traceback) {
    super(message);
    this.rank = rank;
    this.host = host;
    this.reason = reason;
    this.traceback = traceback;
  }

  /** Who has failed. */
  public int rank() {
    return rank;
  }

  /** Where it ran. */
  public String host() {
    return host;
  }

  /** Why, as far as that is known. */
  public String reason() {
    return reason;
  }

  /** Where in its program, or an empty string. */
  public String traceback() {
    return traceback;
  }
}
