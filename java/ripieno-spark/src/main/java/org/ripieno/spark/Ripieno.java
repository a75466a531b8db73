package org.ripieno.spark;

import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.sql.Dataset;
import org.ripieno.Communicator;
import org.ripieno.InputException;
import org.ripieno.TooFewSlotsException;
import scala.collection.JavaConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/**
 * Programs whose ranks compute together, on the partitions of an RDD or a Dataset: map-collective in Spark's barrier
 * mode.
 *
 * <pre>{@code
 * List<double[]> sums = Ripieno.run(rdd, 4, (comm, rows) -> {
 *   double[] sum = {0, 0};
 *   rows.forEachRemaining(row -> { sum[0] += row; sum[1]++; });
 *   return comm.allreduce(sum, Op.SUM);
 * });
 * }</pre>
 *
 * <p>All ranks run at once, so the application needs as many free slots as there are workers. If its executors do not
 * have so many within 10 s, the call throws {@link TooFewSlotsException}. A rank that fails, or
 * whose executor dies, ends the stage; Spark begins all ranks again, as often as its settings say.
 */
public final class Ripieno {
  /** How long executors may take to come. Spark itself asks 40 times, 15 s apart. */
  private static final Duration SLOTS = Duration.ofSeconds(10);

  /** How often it is asked how many slots there are. */
  private static final Duration ASK = Duration.ofMillis(100);

  private Ripieno() {}

  /**
   * Runs a function on every rank.
   *
   * @param rows dealt anew to partitions, one for each rank, unless there are as many
   * @param workers how many ranks
   * @return the results, in the order of the ranks
   * @throws TooFewSlotsException the executors cannot run so many tasks at once
   */
  public static <T, R> List<R> run(JavaRDD<T> rows, int workers, RankFunction<T, R> function) {
    if (workers < 1) {
      throw new InputException("workers=" + workers + ": expected 1 or more");
    }
    awaitSlots(rows.rdd(), workers);
    JavaRDD<T> parts = rows.getNumPartitions() == workers ? rows : rows.repartition(workers);
    ClassTag<R> tag = ClassTag$.MODULE$.apply(Object.class);
    Rank<T, R> rank = new Rank<>(Communicator.newToken(), function);
    return parts.rdd().barrier().mapPartitions(rank, false, tag).toJavaRDD().collect();
  }

  /** Returns once the executors can run so many tasks at once; other jobs may still use some of the slots. */
  private static void awaitSlots(RDD<?> rows, int workers) {
    SparkContext context = rows.context();
    ResourceProfile own = rows.getResourceProfile();
    ResourceProfile profile = own == null ? context.resourceProfileManager().defaultResourceProfile() : own;
    long deadline = System.nanoTime() + SLOTS.toNanos();
    int total;
    while ((total = context.maxNumConcurrentTasks(profile)) < workers) {
      // The slots of a local master do not change.
      if (context.isLocal() || System.nanoTime() > deadline) {
        throw new TooFewSlotsException(
            "Spark",
            workers,
            total,
            "ask for fewer workers, or start Spark with more: master local[N], --num-executors, --executor-cores, "
                + "spark.cores.max");
      }
      LockSupport.parkNanos(ASK.toNanos());
      if (Thread.currentThread().isInterrupted()) {
        throw new IllegalStateException("interrupted while Spark had " + total + " slots for " + workers + " ranks");
      }
    }
  }

  /** The same for an RDD of Scala. */
  public static <T, R> List<R> run(RDD<T> rows, int workers, RankFunction<T, R> function) {
    return run(rows.toJavaRDD(), workers, function);
  }

  /** The same for a Dataset. */
  public static <T, R> List<R> run(Dataset<T> rows, int workers, RankFunction<T, R> function) {
    return run(rows.toJavaRDD(), workers, function);
  }

  /** What a task does: it meets the others, runs the function, and says so if that fails. */
  private static final class Rank<T, R>
      extends AbstractFunction1<scala.collection.Iterator<T>, scala.collection.Iterator<R>>
      implements java.io.Serializable {
    private static final long serialVersionUID = 1;
    private final String token;
    private final RankFunction<T, R> function;

    Rank(String token, RankFunction<T, R> function) {
      this.token = token;
      this.function = function;
    }

    @Override
    public scala.collection.Iterator<R> apply(scala.collection.Iterator<T> rows) {
      BarrierTaskContext task = BarrierTaskContext.get();
      int rank = task.partitionId();
      int size = task.getTaskInfos().length;
      try (Communicator communicator = Communicator.meet(rank, size, token, task::allGather)) {
        Iterator<R> result = List.of(called(communicator, JavaConverters.asJava(rows))).iterator();
        return JavaConverters.asScala(result);
      }
    }

    private R called(Communicator communicator, Iterator<T> rows) {
      try {
        return function.call(communicator, rows);
      } catch (RuntimeException | Error failed) {
        communicator.abort(failed);
        throw failed;
      } catch (Exception failed) {
        communicator.abort(failed);
        throw new IllegalStateException("rank " + communicator.rank() + ": " + failed, failed);
      }
    }
  }
}
