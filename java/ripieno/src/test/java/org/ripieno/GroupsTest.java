package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Communicators of some of the ranks. */
class GroupsTest {
  @Test
  void ranksOfOneColorFormACommunicatorInTheOrderOfTheirKeys() throws Exception {
    Ranks.run(
        5,
        comm -> {
          // Ranks 0, 2 and 4 have color 0, in reverse order; rank 3 has none.
          Communicator part = comm.split(comm.rank() == 3 ? -1 : comm.rank() % 2, -comm.rank());
          if (comm.rank() == 3) {
            assertNull(part);
          } else if (comm.rank() == 1) {
            assertEquals("Communicator(rank 0 of 1)", part.toString());
          } else {
            assertArrayEquals(new int[] {4, 2, 0}, part.allgather(new int[] {comm.rank()}));
            assertEquals(2 - comm.rank() / 2, part.rank());
            assertArrayEquals(new double[] {6}, part.allreduce(new double[] {comm.rank()}, Op.SUM));
            // A part can be split again, with the order of its ranks.
            Communicator again = part.split(part.rank() == 0 ? 7 : 8);
            assertEquals(part.rank() == 0 ? 1 : 2, again.size());
            assertArrayEquals(
                part.rank() == 0 ? new int[] {4} : new int[] {2, 0}, again.allgather(new int[] {comm.rank()}));
          }
          assertArrayEquals(new int[] {10}, comm.allreduce(new int[] {comm.rank()}, Op.SUM));
          return null;
        });
  }

  @Test
  void onlyMembersCallGroup() throws Exception {
    Ranks.run(
        3,
        comm -> {
          if (comm.rank() != 1) {
            try (Communicator pair = comm.group(2, 0)) {
              assertEquals(comm.rank() == 2 ? 0 : 1, pair.rank());
              assertArrayEquals(new long[] {2, 0}, pair.allgather(new long[] {comm.rank()}));
            }
          }
          comm.barrier();
          return null;
        });
  }

  @Test
  void aClosedPartLeavesTheOtherCommunicatorsOpen() throws Exception {
    Ranks.run(
        2,
        comm -> {
          Communicator both = comm.split(0);
          both.close();
          assertThrows(CommunicatorClosedException.class, both::barrier);
          comm.barrier();
          return null;
        });
  }

  @Test
  void invalidRanksAreRefused() throws Exception {
    Ranks.run(
        2,
        comm -> {
          assertRefused(comm, "ranks=[1, -1]: expected ranks of 0 or more", 1, -1);
          assertRefused(comm, "0 to 1", 0, 2);
          assertRefused(comm, "each rank once", comm.rank(), comm.rank());
          assertRefused(comm, "with this rank", 1 - comm.rank());
          return null;
        });
  }

  private static void assertRefused(Communicator comm, String expected, int... ranks) {
    String message = assertThrows(InputException.class, () -> comm.group(ranks)).getMessage();
    assertTrue(message.contains(expected), message);
  }
}
