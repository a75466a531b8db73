import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.ml.clustering.KMeans;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.ripieno.Op;
import org.ripieno.spark.Ripieno;
import org.ripieno.spark.RipienoKMeans;

/**
 * Alternates between Spark's own methods and ranks in its executors, and prints the seconds of both per line:
 *
 * <p>SparkTurns sum LENGTH TURNS: the sum of one vector of doubles per slot, by treeAggregate, and by allreduce.
 *
 * <p>SparkTurns kmeans COUNT K FEW MANY MOST TURNS: fits of points of two columns from random rows, with few and with
 * many iterations: FEW and MOST for ours, FEW and MANY for MLlib's.
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
        int[] numbers = Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray();
        clusters(spark, numbers);
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

  private static void clusters(SparkSession spark, int[] numbers) {
    int count = numbers[0];
    int k = numbers[1];
    int few = numbers[2];
    int many = numbers[3];
    int most = numbers[4];
    Random random = new Random(0);
    List<Row> rows = new ArrayList<>();
    for (int row = 0; row < count; row++) {
      rows.add(RowFactory.create(Vectors.dense(random.nextDouble(), random.nextDouble())));
    }
    StructType schema = new StructType().add("features", SQLDataTypes.VectorType(), false);
    Dataset<Row> table = spark.createDataFrame(rows, schema).repartition(SLOTS).cache();
    table.count();
    for (int turn = -1; turn < numbers[5]; turn++) {
      double ours = perIteration(ours(table, k, few), ours(table, k, most));
      double mllib = perIteration(mllib(table, k, few), mllib(table, k, many));
      if (turn >= 0) {
        System.out.println("turn " + ours + " " + mllib);
      }
    }
  }

  /** A fit: its duration, and its number of iterations, which is lower after convergence. */
  private record Fit(double seconds, int iterations) {}

  private static double perIteration(Fit few, Fit many) {
    return (many.seconds - few.seconds) / (many.iterations - few.iterations);
  }

  private static Fit ours(Dataset<Row> table, int k, int iterations) {
    long begin = System.nanoTime();
    RipienoKMeans estimator = new RipienoKMeans().setK(k).setMaxIter(iterations).setTol(0).setInitMode("random");
    int made = estimator.fit(table).getIterationCount();
    return new Fit((System.nanoTime() - begin) / 1e9, made);
  }

  private static Fit mllib(Dataset<Row> table, int k, int iterations) {
    long begin = System.nanoTime();
    KMeans estimator = new KMeans().setK(k).setMaxIter(iterations).setTol(0).setInitMode("random");
    int made = estimator.fit(table).summary().numIter();
    return new Fit((System.nanoTime() - begin) / 1e9, made);
  }
}
