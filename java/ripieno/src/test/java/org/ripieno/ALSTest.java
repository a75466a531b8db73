package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Alternating least squares of small tables, and its errors. A test of ranks in processes compares it with Python. */
class ALSTest {
  private static final int USERS = 40;
  private static final int ITEMS = 30;
  private static final int RANK = 3;

  @Test
  void factorsHaveTheSameBitsForAnyNumberOfRanks() throws Exception {
    for (boolean isImplicit : new boolean[] {false, true}) {
      // The second rank uses conjugate gradients for implicit ratings.
      for (int rank : new int[] {RANK, 16}) {
        ALS als = new ALS().setRank(rank).setMaxIter(3).setSeed(7).setImplicit(isImplicit);
        Map<Long, float[]> expected = factors(als, 1);
        assertEquals(USERS + ITEMS, expected.size());
        for (int size = 2; size <= 4; size++) {
          Map<Long, float[]> found = factors(als, size);
          assertEquals(expected.keySet(), found.keySet());
          expected.forEach((id, factors) -> assertArrayEquals(factors, found.get(id)));
        }
      }
    }
  }

  @Test
  void itemFactorsSolveTheirNormalEquations() throws Exception {
    double reg = 0.1;
    double alpha = 2;
    for (boolean isImplicit : new boolean[] {false, true}) {
      ALS als = new ALS().setRank(RANK).setMaxIter(4).setReg(reg).setAlpha(alpha).setImplicit(isImplicit);
      ALSModel model = models(als, 1).get(0);
      double objective = isImplicit ? reg * squares(model.userFactors(), 0, USERS) : 0;
      for (int item = 0; item < ITEMS; item++) {
        double[] gradient = new double[RANK];
        int count = 0;
        for (int user = 0; user < USERS; user++) {
          boolean isRated = isRated(user, item);
          double weight = isImplicit ? 1 + (isRated ? alpha * rating(user, item) : 0) : isRated ? 1 : 0;
          double error = -(isImplicit ? (isRated ? 1 : 0) : rating(user, item));
          for (int at = 0; at < RANK; at++) {
            error += model.userFactors()[user * RANK + at] * model.itemFactors()[item * RANK + at];
          }
          for (int at = 0; at < RANK; at++) {
            gradient[at] += weight * error * model.userFactors()[user * RANK + at];
          }
          objective += weight * error * error;
          objective += isRated && !isImplicit ? reg * squares(model.userFactors(), user, user + 1) : 0;
          count += isRated ? 1 : 0;
        }
        double penalty = isImplicit ? reg : reg * count;
        for (int at = 0; at < RANK; at++) {
          assertEquals(0, gradient[at] + penalty * model.itemFactors()[item * RANK + at], 1e-3);
        }
        objective += penalty * squares(model.itemFactors(), item, item + 1);
      }
      double[] objectives = model.objectives();
      assertEquals(4, objectives.length);
      assertEquals(objective, objectives[3], 1e-4 * objective);
      assertTrue(objectives[3] < objectives[0]);
    }
  }

  @Test
  void implicitRatingsOfAPairAreAdded() throws Exception {
    ALS als = new ALS().setRank(2).setMaxIter(2).setImplicit(true);
    ALSModel once = fit(als, new long[] {1, 2}, new long[] {5, 6}, new float[] {3, 2}).get(0);
    ALSModel twice = fit(als, new long[] {1, 2, 1}, new long[] {5, 6, 5}, new float[] {1, 2, 2}).get(0);
    assertArrayEquals(once.itemFactors(), twice.itemFactors());
  }

  @Test
  void allRanksRefuseInvalidRatingsOfOneRank() throws Exception {
    long[] pair = {1, 1};
    assertRefused(new ALS(), "2 ratings are invalid", pair, new long[] {2, 3}, Float.NaN, 1 / 0f);
    assertRefused(new ALS().setImplicit(true), "finite number of 0 or more", pair, pair, 1, -1);
    assertRefused(new ALS(), "1 ratings repeat a pair", pair, pair, 1, 2);
    assertRefused(new ALS(), "different lengths", pair, new long[] {2}, 1, 2);
    assertRefused(new ALS(), "there are no ratings", new long[0], new long[0]);
    assertRefused(new ALS(), "the factors are not finite", pair, new long[] {2, 3}, 3e38f, 3e38f);
    assertThrows(InputException.class, () -> new ALS().setRank(0));
    assertThrows(InputException.class, () -> new ALS().setReg(0));
    assertThrows(InputException.class, () -> new ALS().setAlpha(Double.NaN));
  }

  private static void assertRefused(ALS als, String expected, long[] users, long[] items, float... ratings)
      throws Exception {
    String message =
        assertThrows(InputException.class, () -> fit(als, users, items, ratings)).getMessage();
    assertTrue(message.contains(expected), message);
  }

  /** Fit ratings of the last of two ranks. */
  private static List<ALSModel> fit(ALS als, long[] users, long[] items, float[] ratings) throws Exception {
    return Ranks.run(
        2,
        comm ->
            comm.rank() == 1
                ? als.fit(comm, users, items, ratings)
                : als.fit(comm, new long[0], new long[0], new float[0]));
  }

  private static boolean isRated(int user, int item) {
    return (user * 7 + item * 11) % 3 != 0;
  }

  private static float rating(int user, int item) {
    return (user * 13 + item * 5) % 10 / 2f;
  }

  private static List<ALSModel> models(ALS als, int size) throws Exception {
    int[] pairs =
        IntStream.range(0, USERS * ITEMS).filter(pair -> isRated(pair / ITEMS, pair % ITEMS)).toArray();
    return Ranks.run(
        size,
        comm -> {
          int[] own =
              IntStream.range(0, pairs.length)
                  .filter(at -> at % size == comm.rank())
                  .map(at -> pairs[at])
                  .toArray();
          float[] ratings = new float[own.length];
          for (int at = 0; at < own.length; at++) {
            ratings[at] = rating(own[at] / ITEMS, own[at] % ITEMS);
          }
          return als.fit(
              comm,
              IntStream.of(own).mapToLong(pair -> pair / ITEMS).toArray(),
              IntStream.of(own).mapToLong(pair -> pair % ITEMS).toArray(),
              ratings);
        });
  }

  /** Return the factors of users, and of items with their ids as negative numbers less one. */
  private static Map<Long, float[]> factors(ALS als, int size) throws Exception {
    Map<Long, float[]> factors = new TreeMap<>();
    for (ALSModel model : models(als, size)) {
      for (int row = 0; row < model.users().length; row++) {
        factors.put(model.users()[row], row(model.userFactors(), row, model.rank()));
      }
      for (int row = 0; row < model.items().length; row++) {
        factors.put(-1 - model.items()[row], row(model.itemFactors(), row, model.rank()));
      }
    }
    return factors;
  }

  /** Return the sum of the squared factors of some rows. */
  private static double squares(float[] factors, int begin, int end) {
    return IntStream.range(begin * RANK, end * RANK).mapToDouble(at -> (double) factors[at] * factors[at]).sum();
  }

  private static float[] row(float[] factors, int row, int rank) {
    return Arrays.copyOfRange(factors, row * rank, (row + 1) * rank);
  }
}
