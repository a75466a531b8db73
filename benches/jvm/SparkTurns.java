import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToDoubleFunction;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.ml.clustering.KMeans;
import org.apache.spark.ml.feature.VectorAssembler;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.ripieno.Op;
import org.ripieno.spark.Ripieno;
import org.ripieno.spark.RipienoKMeans;

/**
 * Alternates between ranks in executors and Spark's own methods, and prints the seconds of both per line:
 *
 * <p>SparkTurns sum LENGTH TURNS: the sum of one vector of doubles per slot, by treeAggregate, and by allreduce.
 *
 * <p>SparkTurns kmeans POINTS K ITERATIONS TURNS: whole fits of a file with two columns, from random rows. Per program
 * the seconds from the file to the fit, the mean seconds of a slot in tasks, and the inertia.
 */
public final class SparkTurns {
  private static final int SLOTS = 2;

  public static void main(String[] words) {
    SparkSession spark = SparkSession.builder().appName("ripieno").getOrCreate();
    spark.sparkContext().setLogLevel("ERROR");
    try {
      if (words[0].equals("sum")) {
        sums(new JavaSparkContext(spark.sparkContext()), Integer.parseInt(words[1]), Integer.parseInt(words[2]));
      } else {
        int[] numbers = Arrays.stream(words).skip(2).mapToInt(Integer::parseInt).toArray();
        clusters(spark, words[1], numbers[0], numbers[1], numbers[2]);
      }
    } finally {
      spark.stop();
    }
  }

  private static void sums(JavaSparkContext context, int length, int turns) {
    JavaRDD<Integer> slots = context.parallelize(List.of(0, 1), SLOTS).cache();
    slots.count();
    for (int turn = -1; turn < turns; turn++) {
      long begin = System.nanoTime();
      double[] summed =
          slots.treeAggregate(
              new double[0],
              (sum, slot) -> added(sum, ones(length)),
              SparkTurns::added);
      double bySpark = (System.nanoTime() - begin) / 1e9;
      double byRanks =
          Ripieno.run(
                  slots,
                  SLOTS,
                  (comm, rows) -> {
                    double[] values = ones(length);
                    comm.barrier();
                    long own = System.nanoTime();
                    comm.allreduce(values, Op.SUM);
                    return (System.nanoTime() - own) / 1e9;
                  })
              .stream()
              .max(Double::compare)
              .orElseThrow();
      if (summed[length - 1] != SLOTS) {
        throw new AssertionError("the sum is " + summed[length - 1]);
      }
      if (turn >= 0) {
        System.out.println("turn " + byRanks + " " + bySpark);
      }
    }
  }

  private static double[] ones(int length) {
    double[] values = new double[length];
    Arrays.fill(values, 1.0);
    return values;
  }

  private static double[] added(double[] sum, double[] more) {
    if (sum.length == 0) {
      return more;
    }
    for (int at = 0; at < more.length; at++) {
      sum[at] += more[at];
    }
    return sum;
  }

  private static void clusters(SparkSession spark, String points, int k, int iterations, int turns) {
    TaskTimes times = new TaskTimes();
    spark.sparkContext().addSparkListener(times);
    for (int turn = -1; turn < turns; turn++) {
      String ours = whole(spark, points, times, rows -> ours(rows, k, iterations));
      String mllib = whole(spark, points, times, rows -> mllib(rows, k, iterations));
      if (turn >= 0) {
        System.out.println("turn " + ours + " " + mllib);
      }
    }
  }

  /** Return the seconds from the file to the fit, the mean seconds of a slot in tasks, and the inertia. */
  private static String whole(SparkSession spark, String points, TaskTimes times, ToDoubleFunction<Dataset<Row>> fit) {
    times.take(spark);
    long begin = System.nanoTime();
    Dataset<Row> columns = spark.read().schema("x double, y double").csv(points);
    VectorAssembler assembler = new VectorAssembler().setInputCols(new String[] {"x", "y"}).setOutputCol("features");
    Dataset<Row> rows = assembler.transform(columns).select("features").repartition(SLOTS).cache();
    double inertia = fit.applyAsDouble(rows);
    double total = (System.nanoTime() - begin) / 1e9;
    double inTasks = times.take(spark) / SLOTS;
    rows.unpersist(true);
    return total + " " + inTasks + " " + inertia;
  }

  private static double ours(Dataset<Row> rows, int k, int iterations) {
    RipienoKMeans estimator = new RipienoKMeans().setK(k).setMaxIter(iterations).setTol(0).setInitMode("random");
    return estimator.fit(rows).getTrainingCost();
  }

  private static double mllib(Dataset<Row> rows, int k, int iterations) {
    KMeans estimator = new KMeans().setK(k).setMaxIter(iterations).setTol(0).setInitMode("random");
    return estimator.fit(rows).summary().trainingCost();
  }

  /** The time of the tasks that have ended. */
  private static final class TaskTimes extends SparkListener {
    private final AtomicLong milliseconds = new AtomicLong();

    @Override
    public void onTaskEnd(SparkListenerTaskEnd end) {
      milliseconds.addAndGet(end.taskMetrics().executorRunTime());
    }

    /** Return the seconds of all tasks since the last call. */
    double take(SparkSession spark) {
      try {
        spark.sparkContext().listenerBus().waitUntilEmpty();
      } catch (TimeoutException exception) {
        throw new IllegalStateException("Spark reports its tasks too late", exception);
      }
      return milliseconds.getAndSet(0) / 1e3;
    }
  }
}
