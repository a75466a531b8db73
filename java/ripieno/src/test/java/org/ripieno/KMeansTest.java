package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** K-means over ranks, compared with the true clusters. */
class KMeansTest {
  private static final int COUNT = 600;

  /** Return rows near (0, 0, 0), (10, 10, 10) …; consecutive rows belong to different clusters. */
  private static double[][] clusteredRows(int clusterCount) {
    SplittableRandom random = new SplittableRandom(4);
    double[][] rows = new double[COUNT][3];
    for (int row = 0; row < COUNT; row++) {
      for (int column = 0; column < 3; column++) {
        rows[row][column] = 10 * (row % clusterCount) + random.nextDouble();
      }
    }
    return rows;
  }

  private static KMeansModel fitted(Communicator comm, KMeans kmeans, double[][] rows, boolean areFloats) {
    int size = comm.size();
    try (Points points = areFloats ? Points.ofFloats(3) : Points.ofDoubles(3)) {
      for (int row = COUNT * comm.rank() / size; row < COUNT * (comm.rank() + 1) / size; row++) {
        points.add(rows[row]);
      }
      return kmeans.fit(comm, points);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void theClustersDoNotDependOnTheNumberOfRanks(boolean areFloats) throws Exception {
    double[][] rows = clusteredRows(6);
    KMeans kmeans = new KMeans().setK(6).setSeed(3).setThreads(2);
    KMeansModel expected = Ranks.run(1, comm -> fitted(comm, kmeans, rows, areFloats)).get(0);
    assertTrue(expected.inertia() < COUNT, "inertia " + expected.inertia());
    for (int size : new int[] {2, 3}) {
      List<KMeansModel> models = Ranks.run(size, comm -> fitted(comm, kmeans, rows, areFloats));
      for (KMeansModel model : models) {
        assertTrue(Arrays.deepEquals(models.get(0).centroids(), model.centroids()));
        for (int cluster = 0; cluster < 6; cluster++) {
          assertArrayEquals(expected.centroids()[cluster], model.centroids()[cluster], 1e-5);
        }
      }
      assertEquals(COUNT, models.stream().mapToInt(model -> model.labels().length).sum());
    }
  }

  @Test
  void emptyClustersGetTheFarthestRows() throws Exception {
    double[][] rows = clusteredRows(2);
    double[][] start = {{0, 0, 0}, {1e6, 0, 0}, {2e6, 0, 0}};
    KMeans kmeans = new KMeans().setK(3).setInitialCentroids(start).setMaxIter(1);
    for (KMeansModel model : Ranks.run(3, comm -> fitted(comm, kmeans, rows, false))) {
      for (double[] centroid : model.centroids()) {
        assertTrue(centroid[0] < 100, Arrays.toString(centroid));
      }
    }
  }

  @Test
  void ranksWithoutRowsParticipate() throws Exception {
    double[][] rows = clusteredRows(2);
    List<KMeansModel> models =
        Ranks.run(
            3,
            comm -> {
              try (Points points = Points.ofDoubles(3)) {
                if (comm.rank() == 1) {
                  for (double[] row : rows) {
                    points.add(row);
                  }
                }
                return new KMeans().setK(2).fit(comm, points);
              }
            });
    assertEquals(0, models.get(0).labels().length);
    assertEquals(COUNT, models.get(1).labels().length);
    assertTrue(Arrays.deepEquals(models.get(1).centroids(), models.get(2).centroids()));
  }

  @Test
  void invalidRowsAreReportedOnEveryRank() throws Exception {
    Ranks.run(
        2,
        comm -> {
          try (Points points = Points.ofFloats(2)) {
            points.add(new float[] {1, comm.rank() == 1 ? Float.NaN : 2});
            String message =
                assertThrows(InputException.class, () -> new KMeans().fit(comm, points)).getMessage();
            assertTrue(message.contains("rank 1, row 0, column 1"), message);
            assertThrows(InputException.class, () -> points.add(new float[3]));
          }
          try (Points points = comm.rank() == 0 ? Points.ofFloats(2) : Points.ofFloats(3)) {
            points.add(new float[comm.rank() + 2]);
            String message =
                assertThrows(InputException.class, () -> new KMeans().fit(comm, points)).getMessage();
            assertTrue(message.contains("rank 1 has 3 columns of float"), message);
          }
          return null;
        });
    assertThrows(InputException.class, () -> new KMeans().setK(0));
    assertThrows(InputException.class, () -> new KMeans().setTol(Double.NaN));
    assertThrows(
        InputException.class,
        () -> Ranks.run(1, comm -> new KMeans().setK(2).fit(comm, Points.ofFloats(2))));
  }
}
