package org.ripieno;

/** Callbacks of native code: create the exception of each kind, and check whether a waiting thread was interrupted. */
final class Failures {
  private Failures() {}

  static Throwable of(int kind, String message, int rank, String host, String reason, String traceback) {
    return switch (kind) {
      case 1 -> new RankFailedException(message, rank, host, reason, traceback);
      case 2 -> new CollectiveMismatchException(message);
      case 3 -> new RendezvousException(message);
      case 4 -> new InputException(message);
      case 5 -> new CommunicatorClosedException(message);
      case 6 -> new InterruptedCallException("interrupted while it waited for other ranks, which were notified");
      case 7 -> new OutOfMemoryError(message);
      case 8 -> new MissingIndicesException(message);
      default -> new RipienoException(message);
    };
  }

  static boolean isInterrupted() {
    return Thread.currentThread().isInterrupted();
  }
}
