package org.ripieno;

/** A rank has died, hung or aborted. Every rank of the job gets this exception, and the job has ended. */
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

  /** Return the failed rank. */
  public int rank() {
    return rank;
  }

  /** Return the host of the failed rank. */
  public String host() {
    return host;
  }

  /** Return the cause, as far as it is known. */
  public String reason() {
    return reason;
  }

  /** Return the traceback of the failed rank's program, or an empty string. */
  public String traceback() {
    return traceback;
  }
}
