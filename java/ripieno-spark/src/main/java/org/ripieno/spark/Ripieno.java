package org.ripieno.spark;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.ripieno.Communicator;
import org.ripieno.InputException;
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
 * <p>All ranks run at once, so the application needs as many free slots as there are workers. A rank that fails, or
 * whose executor dies, ends the stage; Spark begins all ranks again, as often as its settings say.
 */
public final class Ripieno {
  private Ripieno() {}

  /**
   * Runs a function on every rank.
   *
   * @param rows dealt anew to partitions, one for each rank, unless there are as many
   * @param workers how many ranks
   * @return the results, in the order of the ranks
   */
  public static <T, R> List<R> run(JavaRDD<T> rows, int workers, RankFunction<T, R> function) {
    if (workers < 1) {
      throw new InputException("workers=" + workers + ": expected 1 or more");
    }
    JavaRDD<T> parts = rows.getNumPartitions() == workers ? rows : rows.repartition(workers);
    ClassTag<R> tag = ClassTag$.MODULE$.apply(Object.class);
    Rank<T, R> rank = new Rank<>(Communicator.newToken(), function);
    return parts.rdd().barrier().mapPartitions(rank, false, tag).toJavaRDD().collect();
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
