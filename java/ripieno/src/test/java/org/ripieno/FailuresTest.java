package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** Exceptions: mismatched calls, failed ranks, interruptions and invalid arguments. */
class FailuresTest {
  @Test
  void aMismatchListsTheCallsOnAllRanks() throws Exception {
    for (Future<double[]> ended :
        Ranks.ended(3, comm -> comm.allreduce(new double[comm.rank() == 2 ? 5 : 4], Op.SUM))) {
      Throwable error = assertThrows(ExecutionException.class, ended::get).getCause();
      assertInstanceOf(CollectiveMismatchException.class, error);
      assertTrue(error.getMessage().contains("rank 2"), error.getMessage());
    }
  }

  @Test
  void anAbortNamesTheRankOnAllOthers() throws Exception {
    List<Future<Object>> all =
        Ranks.ended(
            3,
            comm -> {
              if (comm.rank() == 1) {
                comm.abort(new IllegalStateException("no more rows"));
                return null;
              }
              return comm.allreduce(new int[1], Op.SUM);
            });
    for (int rank : new int[] {0, 2}) {
      Throwable error = assertThrows(ExecutionException.class, all.get(rank)::get).getCause();
      RankFailedException failed = assertInstanceOf(RankFailedException.class, error);
      assertEquals(1, failed.rank());
      assertEquals(Files.readString(Path.of("/proc/sys/kernel/hostname")).strip(), failed.host());
      assertTrue(failed.getMessage().contains("rank 1 on host " + failed.host()), failed.getMessage());
      assertTrue(failed.reason().contains("no more rows"), failed.reason());
      assertTrue(failed.traceback().contains("FailuresTest"), failed.traceback());
    }
  }

  @Test
  void anInterruptionFailsTheOtherRanks() throws Exception {
    List<Future<Object>> all =
        Ranks.ended(
            2,
            comm -> {
              if (comm.rank() == 1) {
                Thread waiting = Thread.currentThread();
                new Thread(
                        () -> {
                          try {
                            Thread.sleep(300);
                          } catch (InterruptedException never) {
                            throw new AssertionError(never);
                          }
                          waiting.interrupt();
                        })
                    .start();
                try {
                  comm.barrier();
                } finally {
                  assertTrue(Thread.interrupted());
                }
              } else {
                Thread.sleep(3000);
                comm.barrier();
              }
              return null;
            });
    assertInstanceOf(
        InterruptedCallException.class, assertThrows(ExecutionException.class, all.get(1)::get).getCause());
    assertInstanceOf(
        RankFailedException.class, assertThrows(ExecutionException.class, all.get(0)::get).getCause());
  }

  @Test
  void invalidArgumentsAreReportedAndTheJobContinues() throws Exception {
    Ranks.run(
        1,
        comm -> {
          assertThrows(InputException.class, () -> comm.allreduce("text", Op.SUM));
          assertThrows(InputException.class, () -> comm.allreduce(new boolean[1], Op.SUM));
          assertThrows(InputException.class, () -> comm.allreduce(null, Op.SUM));
          assertThrows(InputException.class, () -> comm.allreduce(DoubleBuffer.allocate(3), Op.SUM));
          DoubleBuffer foreign = ByteBuffer.allocateDirect(24).asDoubleBuffer();
          assertTrue(
              assertThrows(InputException.class, () -> comm.allreduce(foreign, Op.SUM))
                  .getMessage()
                  .contains("nativeOrder"));
          assertThrows(InputException.class, () -> comm.allreduce(new double[1], Op.XOR));
          assertThrows(InputException.class, () -> comm.broadcast(new int[1], 4));
          assertThrows(InputException.class, () -> comm.allgather(new int[2], new long[] {1, 1}));
          assertThrows(InputException.class, () -> comm.allgather(new int[2], new long[] {-1}));
          assertThrows(InputException.class, () -> KeyedRows.of(new long[2], new int[3], 2));
          assertThrows(
              InputException.class, () -> comm.sparse(new long[] {-1}, new long[0]));
          assertThrows(InputException.class, () -> new SparseReduction.Options().size(-5));
          assertThrows(
              InputException.class,
              () -> comm.sparse(new long[] {1}, new long[0], new SparseReduction.Options().degrees("7x2")));
          return comm.allreduce(new int[] {1}, Op.SUM);
        });
  }

  @Test
  void callsOnAClosedCommunicatorFail() throws Exception {
    Communicator comm = Communicator.connect(0, 1, Communicator.newToken(), mine -> new String[] {mine});
    comm.close();
    comm.close();
    assertThrows(CommunicatorClosedException.class, comm::barrier);
  }

  @Test
  void missingRanksFailTheRendezvous() {
    String token = Communicator.newToken();
    Rendezvous rendezvous = Communicator.rendezvous(0, 2, token).rendezvousTimeout(Duration.ofMillis(300));
    assertThrows(RendezvousException.class, () -> rendezvous.at("127.0.0.1", 45_871));
    assertThrows(InputException.class, () -> Communicator.connect(3, 2, token, mine -> null));
    assertThrows(InputException.class, () -> Communicator.rendezvous(0, 1, ""));
    assertThrows(RendezvousException.class, () -> Communicator.connect(0, 1, "secret", mine -> new String[] {mine}));
    RuntimeException own = new IllegalArgumentException("no engine");
    RuntimeException error =
        assertThrows(
            RuntimeException.class,
            () ->
                Communicator.connect(
                    0,
                    2,
                    token,
                    mine -> {
                      throw own;
                    }));
    assertTrue(error == own || error.getMessage().contains("no engine"), error.toString());
  }

  @Test
  void eachClassLoaderLoadsItsOwnLibrary() throws Exception {
    URL[] classes = {Communicator.class.getProtectionDomain().getCodeSource().getLocation()};
    for (int each = 0; each < 2; each++) {
      try (URLClassLoader loader = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader())) {
        Class<?> other = loader.loadClass("org.ripieno.Communicator");
        assertTrue(other != Communicator.class);
        assertEquals(64, ((String) other.getMethod("newToken").invoke(null)).length());
      }
    }
  }
}
