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
 * Runs a function on ranks that communicate, one rank per partition of an RDD or a Dataset: map-collective in Spark's
 * barrier mode.
 *
 * <pre>{@code
 * List<double[]> sums = Ripieno.run(rdd, 4, (comm, rows) -> {
 *   double[] sum = {0, 0};
 *   rows.forEachRemaining(row -> { sum[0] += row; sum[1]++; });
 *   return comm.allreduce(sum, Op.SUM);
 * });
 * }</pre>
 *
 * <p>All ranks run at the same time, so the application needs as many free slots as workers. If the executors do not
 * provide them within 10 s, the call throws {@link TooFewSlotsException}. If a rank fails or its executor dies, the
 * stage ends. Spark restarts all ranks, as often as its settings allow.
 */
public final class Ripieno {
  /** Maximum time for executors to start. Spark itself checks 40 times, every 15 s. */
  private static final Duration SLOT_TIMEOUT = Duration.ofSeconds(10);

  /** Interval between checks of the number of slots. */
  private static final Duration SLOT_CHECK_INTERVAL = Duration.ofMillis(100);

  private Ripieno() {}

  /**
   * Run a function on every rank.
   *
   * @param rows repartitioned to one partition per rank, unless the partition count matches already
   * @param workers number of ranks
   * @return the results, ordered by rank
   * @throws TooFewSlotsException if the executors cannot run that many tasks at the same time
   */
  public static <T, R> List<R> run(JavaRDD<T> rows, int workers, RankFunction<T, R> function) {
    if (workers < 1) {
      throw new InputException("workers=" + workers + ": expected 1 or more");
    }
    awaitSlots(rows.rdd(), workers);
    JavaRDD<T> parts = rows.getNumPartitions() == workers ? rows : rows.repartition(workers);
    ClassTag<R> tag = ClassTag$.MODULE$.apply(Object.class);
    RankTask<T, R> rank = new RankTask<>(Communicator.newToken(), function);
    return parts.rdd().barrier().mapPartitions(rank, false, tag).toJavaRDD().collect();
  }

  /** Wait until the executors can run that many tasks at the same time; other jobs may still use some of the slots. */
  private static void awaitSlots(RDD<?> rows, int workers) {
    SparkContext context = rows.context();
    ResourceProfile own = rows.getResourceProfile();
    ResourceProfile profile = own == null ? context.resourceProfileManager().defaultResourceProfile() : own;
    long deadline = System.nanoTime() + SLOT_TIMEOUT.toNanos();
    int total;
    while ((total = context.maxNumConcurrentTasks(profile)) < workers) {
      // The slots of a local master do not change.
      if (context.isLocal() || System.nanoTime() > deadline) {
        throw new TooFewSlotsException(
            "Spark",
            workers,
            total,
            "request fewer workers, or start Spark with more: master local[N], --num-executors, --executor-cores, "
                + "spark.cores.max");
      }
      LockSupport.parkNanos(SLOT_CHECK_INTERVAL.toNanos());
      if (Thread.currentThread().isInterrupted()) {
        throw new IllegalStateException("interrupted while Spark had " + total + " slots for " + workers + " ranks");
      }
    }
  }

  /** Run a function on every rank, with the rows of a Scala RDD. */
  public static <T, R> List<R> run(RDD<T> rows, int workers, RankFunction<T, R> function) {
    return run(rows.toJavaRDD(), workers, function);
  }

  /** Run a function on every rank, with the rows of a Dataset. */
  public static <T, R> List<R> run(Dataset<T> rows, int workers, RankFunction<T, R> function) {
    return run(rows.toJavaRDD(), workers, function);
  }

  /** The body of a task: connects to the other ranks, runs the function, and reports its failure. */
  private static final class RankTask<T, R>
      extends AbstractFunction1<scala.collection.Iterator<T>, scala.collection.Iterator<R>>
      implements java.io.Serializable {
    private static final long serialVersionUID = 1;
    private final String token;
    private final RankFunction<T, R> function;

    RankTask(String token, RankFunction<T, R> function) {
      this.token = token;
      this.function = function;
    }

    @Override
    public scala.collection.Iterator<R> apply(scala.collection.Iterator<T> rows) {
      BarrierTaskContext task = BarrierTaskContext.get();
      int rank = task.partitionId();
      int size = task.getTaskInfos().length;
      try (Communicator communicator = Communicator.connect(rank, size, token, task::allGather)) {
        Iterator<R> result = List.of(callFunction(communicator, JavaConverters.asJava(rows))).iterator();
        return JavaConverters.asScala(result);
      }
    }

    private R callFunction(Communicator communicator, Iterator<T> rows) {
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
