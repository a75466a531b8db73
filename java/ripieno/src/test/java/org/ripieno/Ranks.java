package org.ripieno;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Ranks on threads of this machine. */
final class Ranks {
  private static final long TIMEOUT_S = 60;

  /** What a rank does. */
  interface Program<R> {
    R run(Communicator communicator) throws Exception;
  }

  private Ranks() {}

  /** The results of all, in the order of the ranks; the first exception, if there is one. */
  static <R> List<R> run(int size, Program<R> program) throws Exception {
    List<R> results = new ArrayList<>();
    for (Future<R> ended : ended(size, program)) {
      try {
        results.add(ended.get());
      } catch (ExecutionException failed) {
        if (failed.getCause() instanceof Error error) {
          throw error;
        }
        throw (Exception) failed.getCause();
      }
    }
    return results;
  }

  /** How every rank ended. */
  static <R> List<Future<R>> ended(int size, Program<R> program) throws Exception {
    String token = Communicator.newToken();
    String[] told = new String[size];
    CyclicBarrier all = new CyclicBarrier(size);
    ExecutorService threads = Executors.newFixedThreadPool(size);
    try {
      List<Callable<R>> ranks = new ArrayList<>();
      for (int each = 0; each < size; each++) {
        int rank = each;
        ranks.add(
            () -> {
              Exchange exchange =
                  mine -> {
                    told[rank] = mine;
                    all.await(TIMEOUT_S, TimeUnit.SECONDS);
                    return told.clone();
                  };
              try (Communicator communicator = Communicator.meet(rank, size, token, exchange)) {
                return program.run(communicator);
              }
            });
      }
      return threads.invokeAll(ranks, TIMEOUT_S, TimeUnit.SECONDS);
    } finally {
      threads.shutdownNow();
    }
  }
}
