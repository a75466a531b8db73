package org.ripieno;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Collectives on arrays and buffers, compared with results computed on one thread. */
class CollectivesTest {
  private static final List<Class<?>> TYPES =
      List.of(byte.class, short.class, int.class, long.class, float.class, double.class);

  private static Object filled(Class<?> type, int length, int first, int step) {
    Object array = Array.newInstance(type, length);
    for (int at = 0; at < length; at++) {
      set(array, at, first + at * step);
    }
    return array;
  }

  private static void set(Object array, int at, int value) {
    Class<?> type = array.getClass().getComponentType();
    if (type == byte.class) {
      Array.setByte(array, at, (byte) value);
    } else if (type == short.class) {
      Array.setShort(array, at, (short) value);
    } else {
      Array.setInt(array, at, value);
    }
  }

  private static void assertAlike(Object expected, Object actual) {
    assertTrue(Arrays.deepEquals(new Object[] {expected}, new Object[] {actual}));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 5})
  void allTypesAreReducedScannedAndSent(int size) throws Exception {
    for (Class<?> type : TYPES) {
      Ranks.run(
          size,
          comm -> {
            int rank = comm.rank();
            int sum = size * (size - 1) / 2;
            assertAlike(
                filled(type, 4, sum, size), comm.allreduce(filled(type, 4, rank, 1), Op.SUM));
            assertAlike(filled(type, 3, size - 1, 0), comm.allreduce(filled(type, 3, rank, 0), Op.MAX));
            Object mine = filled(type, 4, rank, 1);
            comm.reduce(mine, Op.SUM, size - 1);
            assertAlike(rank == size - 1 ? filled(type, 4, sum, size) : filled(type, 4, rank, 1), mine);
            assertAlike(filled(type, 5, 7, 1), comm.broadcast(filled(type, 5, rank == 0 ? 7 : 0, 1), 0));
            assertAlike(filled(type, 1, rank * (rank + 1) / 2, 0), comm.scan(filled(type, 1, rank, 0), Op.SUM));
            if (rank > 0) {
              assertAlike(
                  filled(type, 1, rank * (rank - 1) / 2, 0), comm.exscan(filled(type, 1, rank, 0), Op.SUM));
            } else {
              comm.exscan(filled(type, 1, rank, 0), Op.SUM);
            }
            if (size > 1 && rank == 0) {
              comm.send(filled(type, 6, 3, 2), size - 1);
            } else if (size > 1 && rank == size - 1) {
              assertAlike(filled(type, 6, 3, 2), comm.receive(filled(type, 6, 0, 0), 0));
            }
            comm.barrier();
            return null;
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 5})
  void ranksMayHaveDifferentLengthsIncludingZero(int size) throws Exception {
    Ranks.run(
        size,
        comm -> {
          int rank = comm.rank();
          // Rank r has r elements of value r; rank 0 has none.
          long[] mine = new long[rank];
          Arrays.fill(mine, rank);
          long[] all = new long[size * (size - 1) / 2];
          long[] counts = new long[size];
          for (int each = 0, at = 0; each < size; each++) {
            counts[each] = each;
            Arrays.fill(all, at, at + each, each);
            at += each;
          }
          assertArrayEquals(all, comm.allgather(mine));
          assertArrayEquals(all, comm.allgather(mine, counts));
          long[] gathered = comm.gather(mine, 0);
          if (rank == 0) {
            assertArrayEquals(all, gathered);
          } else {
            assertNull(gathered);
          }
          assertArrayEquals(mine, comm.scatter(rank == 0 ? all : new long[0], counts, 0));
          long[] sums = new long[rank];
          Arrays.fill(sums, (long) rank * size);
          assertArrayEquals(sums, comm.reduceScatter(all, counts, Op.SUM));
          // Rank r sends r + to elements to each rank.
          long[] out = new long[size * rank + size * (size - 1) / 2];
          long[] outCounts = new long[size];
          for (int to = 0, at = 0; to < size; to++) {
            outCounts[to] = rank + to;
            Arrays.fill(out, at, at + rank + to, 100 * rank + to);
            at += rank + to;
          }
          long[] arrived = comm.alltoall(out, outCounts);
          int at = 0;
          for (int from = 0; from < size; from++) {
            for (int each = 0; each < from + rank; each++) {
              assertEquals(100 * from + rank, arrived[at++]);
            }
          }
          assertEquals(at, arrived.length);
          long[] before = comm.rotate(mine, 1);
          assertEquals((rank + size - 1) % size, before.length);
          return null;
        });
  }

  @Test
  void directBuffersAreReducedInPlaceFromPositionToLimit() throws Exception {
    Ranks.run(
        3,
        comm -> {
          DoubleBuffer values = ByteBuffer.allocateDirect(80).order(ByteOrder.nativeOrder()).asDoubleBuffer();
          for (int at = 0; at < 10; at++) {
            values.put(at, comm.rank() + at);
          }
          values.position(2).limit(8);
          assertSame(values, comm.allreduce(values, Op.SUM));
          for (int at = 0; at < 10; at++) {
            values.limit(10);
            assertEquals(at < 2 || at >= 8 ? comm.rank() + at : 3 + 3 * at, values.get(at));
          }
          return null;
        });
  }

  @Test
  void asynchronousCallsContinueDuringGarbageCollection() throws Exception {
    int length = 300_000;
    Ranks.run(
        2,
        comm -> {
          for (int round = 0; round < 5; round++) {
            double[] values = new double[length];
            Arrays.fill(values, comm.rank() + round);
            Handle<double[]> first = comm.allreduceAsync(values, Op.SUM);
            Handle<int[]> second = comm.broadcastAsync(new int[] {comm.rank() + 5}, 1);
            System.gc();
            double[] reduced = first.get();
            assertSame(values, reduced);
            assertTrue(first.isDone());
            assertEquals(1 + 2 * round, reduced[length - 1]);
            assertEquals(6, second.get()[0]);
            assertSame(values, first.get());
          }
          return null;
        });
  }

  @Test
  void discardedHandlesAreFreed() throws Exception {
    Ranks.run(
        2,
        comm -> {
          for (int round = 0; round < 50; round++) {
            comm.allreduceAsync(new float[1000], Op.SUM);
          }
          System.gc();
          comm.barrier();
          return comm.allreduce(new int[] {1}, Op.SUM);
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void sparseRowsAreSummedAtTheRanksThatRequestThem(int size) throws Exception {
    Ranks.run(
        size,
        comm -> {
          int rank = comm.rank();
          // Each rank contributes to its own number, the next number, and 100.
          long[] out = {rank, rank + 1, 100};
          long[] in = {100, rank + 1};
          try (SparseReduction reduction = comm.sparse(out, in)) {
            float[] rows = {1, 2, 10, 20, rank, 1};
            float[] reduced = reduction.reduce(rows, 2, Op.SUM);
            int sum = size * (size - 1) / 2;
            boolean isLast = rank == size - 1;
            assertArrayEquals(new float[] {sum, size, isLast ? 10 : 11, isLast ? 20 : 22}, reduced);
            assertTrue(reduction.degrees().length() > 0);
          }
          return null;
        });
  }

  @Test
  void missingIndicesAreAnErrorOrZero() throws Exception {
    Ranks.run(
        2,
        comm -> {
          RipienoException reported = null;
          try {
            comm.sparse(new long[] {1}, new long[] {2});
          } catch (MissingIndicesException missing) {
            reported = missing;
          }
          assertTrue(reported != null && reported.getMessage().contains("2"), String.valueOf(reported));
          SparseReduction.Options zero = new SparseReduction.Options().missingIsZero(true);
          SparseReduction reduction = comm.sparse(new long[] {1}, new long[] {2}, zero);
          assertArrayEquals(new long[] {0}, reduction.reduce(new long[] {9}, 1, Op.SUM));
          return null;
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3})
  void rowsOfEqualKeysAreSummedAtOneRank(int size) throws Exception {
    List<long[]> sums =
        Ranks.run(
            size,
            comm -> {
              String[] words = {"a", "bß", "", "a", "rank" + comm.rank()};
              KeyedRows rows = KeyedRows.of(words, new double[] {1, 10, 2, 20, 3, 30, 4, 40, 5, 50}, 2);
              KeyedRows own = comm.regroup(rows, Combine.SUM);
              long[] found = new long[3 + size];
              for (int key = 0; key < own.keyCount(); key++) {
                String word = own.stringKeys()[key];
                int common = Arrays.asList("a", "bß", "").indexOf(word);
                int place = common >= 0 ? common : 3 + word.charAt(4) - '0';
                found[place] = (long) own.values(double[].class)[2 * key + 1];
              }
              return comm.allreduce(found, Op.SUM);
            });
    for (long[] found : sums) {
      assertEquals(50 * size, found[0]);
      assertEquals(20 * size, found[1]);
      assertEquals(30 * size, found[2]);
      assertEquals(50, found[3]);
    }
  }

  @Test
  void rowsOfIntegerKeysMayBeConcatenated() throws Exception {
    Ranks.run(
        2,
        comm -> {
          KeyedRows rows = KeyedRows.of(new long[] {5, -7, 5}, new int[] {1, 2, 3}, 1);
          KeyedRows own = comm.regroup(rows, Combine.CONCAT, 2);
          long count = 0;
          for (int key = 0; key < own.keyCount(); key++) {
            assertEquals(own.longKeys()[key] == 5 ? 4 : 2, own.counts()[key]);
            count += own.counts()[key];
          }
          assertEquals(count, own.values(int[].class).length);
          assertEquals(6, comm.allreduce(new long[] {count}, Op.SUM)[0]);
          return null;
        });
  }
}
