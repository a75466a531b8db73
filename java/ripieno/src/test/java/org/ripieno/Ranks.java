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

/** Runs ranks on threads of this process. */
final class Ranks {
  private static final long TIMEOUT_S = 60;

  /** The program of a rank. */
  interface Program<R> {
    R run(Communicator communicator) throws Exception;
  }

  private Ranks() {}

  /** Return the results of all ranks, ordered by rank, or throw the first exception. */
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

  /** Return the outcome of every rank. */
  static <R> List<Future<R>> ended(int size, Program<R> program) throws Exception {
    String token = Communicator.newToken();
    String[] addresses = new String[size];
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
                    addresses[rank] = mine;
                    all.await(TIMEOUT_S, TimeUnit.SECONDS);
                    return addresses.clone();
                  };
              try (Communicator communicator = Communicator.connect(rank, size, token, exchange)) {
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
