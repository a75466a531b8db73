package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** PageRank of small graphs, and its errors. A test of ranks in processes compares it with Python. */
class PageRankTest {
  private static final long[] NONE = {};

  @Test
  void ranksOfASmallGraphAreKnown() throws Exception {
    for (int size = 1; size <= 3; size++) {
      List<PageRankModel> parts =
          Ranks.run(
              size,
              comm ->
                  comm.rank() == 0
                      ? new PageRank().fit(comm, new long[] {0, 1, 2, 1}, new long[] {2, 2, 0, 2}, null)
                      : new PageRank().fit(comm, NONE, NONE, null));
      double[] expected = {0.464, 0.05, 0.486};
      int found = 0;
      for (PageRankModel part : parts) {
        assertTrue(part.hasConverged());
        for (int at = 0; at < part.vertices().length; at++, found++) {
          assertEquals(expected[(int) part.vertices()[at]], part.ranks()[at], 5e-4);
        }
      }
      assertEquals(3, found);
    }
  }

  @Test
  void iterationsAreLimited() throws Exception {
    PageRankModel model =
        Ranks.run(
                1, comm -> new PageRank().setMaxIter(2).fit(comm, new long[] {0, 1}, new long[] {1, 2}, null))
            .get(0);
    assertEquals(2, model.iterationCount());
    assertFalse(model.hasConverged());
  }

  @Test
  void allRanksRefuseInvalidEdgesOfOneRank() throws Exception {
    Ranks.run(
        2,
        comm -> {
          long[] vertices = comm.rank() == 0 ? new long[] {1} : NONE;
          assertRefused(comm, "there are no edges", NONE, NONE, null);
          assertRefused(comm, "negative vertex id", vertices, comm.rank() == 0 ? new long[] {-1} : NONE, null);
          assertRefused(comm, "differ in length", vertices, NONE, null);
          double[] weights = comm.rank() == 0 ? new double[] {Double.NaN} : new double[0];
          assertRefused(comm, "a weight is negative or not finite", vertices, vertices, weights);
          assertRefused(comm, "only some ranks", vertices, vertices, comm.rank() == 0 ? new double[] {1} : null);
          return null;
        });
  }

  private static void assertRefused(
      Communicator comm, String expected, long[] sources, long[] targets, double[] weights) {
    String message =
        assertThrows(InputException.class, () -> new PageRank().fit(comm, sources, targets, weights)).getMessage();
    assertTrue(message.contains(expected), message);
  }
}
