import static org.apache.spark.sql.functions.avg;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.max;
import static org.apache.spark.sql.functions.size;
import static org.apache.spark.sql.functions.when;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.ml.Pipeline;
import org.apache.spark.ml.PipelineModel;
import org.apache.spark.ml.PipelineStage;
import org.apache.spark.ml.clustering.KMeans;
import org.apache.spark.ml.clustering.KMeansSummary;
import org.apache.spark.ml.feature.VectorAssembler;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.LongAccumulator;
import org.ripieno.Communicator;
import org.ripieno.InputException;
import org.ripieno.Op;
import org.ripieno.Points;
import org.ripieno.TooFewSlotsException;
import org.ripieno.spark.ArrowPoints;
import org.ripieno.spark.Ripieno;
import org.ripieno.spark.RipienoALS;
import org.ripieno.spark.RipienoALSModel;
import org.ripieno.spark.RipienoKMeans;
import org.ripieno.spark.RipienoKMeansModel;
import org.ripieno.spark.RipienoPageRank;

/** Test programs on Spark: SparkPrograms FOLDER, started by spark-submit. */
public final class SparkPrograms {
  private static final int CLUMPS = 5;

  public static void main(String[] words) throws Exception {
    SparkSession spark =
        SparkSession.builder()
            .appName("ripieno")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.executor.memory", "512m")
            .config("spark.stage.maxConsecutiveAttempts", "1")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate();
    try {
      sums(spark);
      shared(spark);
      clusters(spark, words[0]);
      pagerank(spark, words[0]);
      als(spark, words[0]);
      arrow();
      refused(spark);
      slots(spark);
      failing(spark);
      if (spark.sparkContext().master().startsWith("local-cluster")) {
        killed(spark);
      }
    } finally {
      spark.stop();
    }
  }

  private static void sums(SparkSession spark) {
    List<Double> numbers = new ArrayList<>();
    for (int number = 0; number < 1000; number++) {
      numbers.add((double) number);
    }
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    List<double[]> sums = Ripieno.run(context.parallelize(numbers, 7), 2, SparkPrograms::sum);
    System.out.println("sums " + Arrays.toString(sums.get(0)) + " " + Arrays.toString(sums.get(1)));
  }

  /** Checks that ranks read broadcast variables of Spark and add to its accumulators. */
  private static void shared(SparkSession spark) {
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    Broadcast<double[]> table = context.broadcast(new double[] {10, 20, 30});
    LongAccumulator added = spark.sparkContext().longAccumulator("rows");
    List<Double> products =
        Ripieno.run(
            context.parallelize(List.of(0, 1, 2, 1), 2),
            2,
            (comm, rows) -> {
              double[] sum = new double[1];
              while (rows.hasNext()) {
                sum[0] += table.value()[rows.next()];
                added.add(1);
              }
              return comm.allreduce(sum, Op.SUM)[0];
            });
    System.out.println("shared " + products + " " + added.value());
  }

  private static double[] sum(Communicator comm, Iterator<Double> rows) {
    double[] sum = {0, 0, comm.size()};
    while (rows.hasNext()) {
      sum[0] += rows.next();
      sum[1]++;
    }
    return comm.allreduce(sum, Op.SUM);
  }

  private static void clusters(SparkSession spark, String folder) throws Exception {
    Random random = new Random(3);
    List<Row> rows = new ArrayList<>();
    for (int row = 0; row < 2000; row++) {
      double at = 20 * (row % CLUMPS);
      rows.add(RowFactory.create(at + random.nextGaussian(), at + random.nextGaussian(), row));
    }
    StructType schema =
        new StructType().add("x", DataTypes.DoubleType).add("y", DataTypes.DoubleType).add("id", DataTypes.IntegerType);
    Dataset<Row> table = spark.createDataFrame(rows, schema).repartition(2);
    VectorAssembler assembler = new VectorAssembler().setInputCols(new String[] {"x", "y"}).setOutputCol("point");
    RipienoKMeans ours =
        new RipienoKMeans().setK(CLUMPS).setFeaturesCol("point").setPredictionCol("label").setSeed(1).setMaxIter(50);
    PipelineModel fitted = new Pipeline().setStages(new PipelineStage[] {assembler, ours}).fit(table);
    Dataset<Row> vectors = assembler.transform(table);
    org.apache.spark.ml.clustering.KMeansModel peer =
        new KMeans().setK(CLUMPS).setFeaturesCol("point").setSeed(1).setMaxIter(50).setTol(1e-12).fit(vectors);
    RipienoKMeansModel model = (RipienoKMeansModel) fitted.stages()[1];
    System.out.println("centers " + sorted(model.getClusterCenters()));
    double[][] peers = Arrays.stream(peer.clusterCenters()).map(Vector::toArray).toArray(double[][]::new);
    System.out.println("centers " + sorted(peers));
    System.out.println("cost " + model.getTrainingCost());
    System.out.println("cost " + peer.summary().trainingCost());
    KMeansSummary summary = model.copy(ParamMap.empty()).summary();
    System.out.println(
        "summary "
            + (summary.trainingCost() == model.getTrainingCost() && summary.numIter() == model.getIterationCount())
            + " "
            + Arrays.toString(summary.clusterSizes())
            + " "
            + String.join(",", summary.predictions().columns()));

    String path = Path.of(folder, "model").toString();
    fitted.write().overwrite().save(path);
    PipelineModel loaded = PipelineModel.load(path);
    RipienoKMeansModel loadedModel = (RipienoKMeansModel) loaded.stages()[1];
    try {
      loadedModel.summary();
    } catch (IllegalStateException described) {
      System.out.println("summary " + loadedModel.hasSummary() + " " + described.getMessage().contains("was loaded"));
    }
    Dataset<Row> labeled = loaded.transform(table);
    Dataset<Row> both = labeled.join(peer.transform(vectors).select("id", "prediction"), "id");
    System.out.println("pairs of labels " + both.groupBy("label", "prediction").count().count());
    RipienoKMeans read = RipienoKMeans.load(saved(ours, Path.of(folder, "estimator").toString()));
    System.out.println("read " + read.extractParamMap().toSeq().size() + " " + (int) read.getOrDefault(read.k()));
    RipienoKMeansModel floats = ours.setElementType("float").setWorkers(2).fit(vectors);
    System.out.println("float " + Math.abs(floats.getTrainingCost() / model.getTrainingCost() - 1));
    // The double weight of all rows doubles the cost exactly.
    RipienoKMeansModel weighted = read.setWeightCol("weight").fit(vectors.withColumn("weight", lit(2)));
    System.out.println("weighted " + weighted.getTrainingCost() / model.getTrainingCost());
    try {
      read.fit(vectors.withColumn("weight", when(col("id").equalTo(7), null).otherwise(1)));
    } catch (Exception missing) {
      System.out.println("missing " + missing.getMessage().contains("expected a finite weight of 0 or more"));
    }
  }

  private static void pagerank(SparkSession spark, String folder) throws Exception {
    // The edges (0, 2), (1, 2) and (2, 0), some of them twice.
    Dataset<Row> edges =
        spark.range(6).select(col("id").mod(3).as("src"), when(col("id").mod(3).equalTo(2), 0).otherwise(2).as("to"));
    RipienoPageRank ours = new RipienoPageRank().setDstCol("to").setWorkers(2);
    String path = Path.of(folder, "pagerank").toString();
    ours.write().overwrite().save(path);
    for (Dataset<Row> ranks :
        List.of(
            RipienoPageRank.load(path).transform(edges),
            ours.copy(ParamMap.empty()).setWeightCol("w").transform(edges.withColumn("w", col("src").plus(1))))) {
      StringBuilder described = new StringBuilder();
      for (Row row : ranks.orderBy("id").collectAsList()) {
        described.append(String.format(" %d=%.12f", row.getLong(0), row.getDouble(1)));
      }
      System.out.println("pagerank" + described);
    }
    for (RipienoPageRank each : List.of(ours, ours.copy(ParamMap.empty()).setMaxIter(3))) {
      Metadata end = each.transform(edges).schema().apply("rank").metadata();
      System.out.println("pagerank " + end.getBoolean("hasConverged") + " " + (end.getLong("iterationCount") == 3));
    }
    try {
      ours.setSrcCol("from").transform(edges);
    } catch (IllegalArgumentException described) {
      System.out.println("pagerank " + described.getMessage());
    }
  }

  private static void als(SparkSession spark, String folder) throws Exception {
    Column user = col("id").divide(30).cast("int");
    Column item = col("id").mod(30);
    Column rating = user.mod(4).plus(1).multiply(item.mod(5).plus(1)).plus(user.plus(item).mod(3)).cast("float");
    Dataset<Row> ratings =
        spark
            .range(1200)
            .filter(col("id").mod(7).notEqual(0))
            .select(user.as("user"), item.cast("int").as("item"), rating.as("rating"));
    RipienoALS ours = new RipienoALS().setRank(3).setMaxIter(10).setRegParam(0.01).setWorkers(2).setSeed(1);
    org.apache.spark.ml.recommendation.ALS peer =
        new org.apache.spark.ml.recommendation.ALS()
            .setRank(3)
            .setMaxIter(10)
            .setRegParam(0.01)
            .setNumBlocks(2)
            .setSeed(1);
    String path = Path.of(folder, "als").toString();
    ours.fit(ratings).write().overwrite().save(path);
    RipienoALSModel model = RipienoALSModel.load(path);
    System.out.println("als " + error(model.transform(ratings)) + " " + error(peer.fit(ratings).transform(ratings)));

    Dataset<Row> unknown = spark.range(1).select(lit(-3).as("user"), lit(2).as("item"));
    System.out.println(
        "als "
            + model.transform(unknown).first().getFloat(2)
            + " "
            + model.copy(ParamMap.empty().put(model.coldStartStrategy(), "drop")).transform(unknown).count());
    Dataset<Row> all = spark.range(30).select(lit(5).as("user"), col("id").as("item"));
    float best = model.transform(all).agg(max("prediction")).first().getFloat(0);
    Row first =
        model
            .recommendForAllUsers(2)
            .filter(col("user").equalTo(5))
            .select(col("recommendations").getItem(0).getField("rating"), size(col("recommendations")))
            .first();
    System.out.println("als " + (first.getFloat(0) == best) + " " + first.getInt(1));
    try {
      ours.fit(ratings.withColumn("rating", when(col("item").equalTo(3), null).otherwise(col("rating"))));
    } catch (Exception missing) {
      System.out.println("als " + missing.getMessage().contains("a rating has a null"));
    }
  }

  private static double error(Dataset<Row> predicted) {
    Column difference = col("rating").minus(col("prediction"));
    return Math.sqrt(predicted.agg(avg(difference.multiply(difference))).first().getDouble(0));
  }

  private static String saved(RipienoKMeans estimator, String path) throws Exception {
    estimator.write().overwrite().save(path);
    return path;
  }

  private static String sorted(double[][] centers) {
    Arrays.sort(centers, (a, b) -> Double.compare(a[0], b[0]));
    StringBuilder described = new StringBuilder();
    for (double[] center : centers) {
      described.append(String.format("%.6f,%.6f ", center[0], center[1]));
    }
    return described.toString();
  }

  /** Checks that columns of Arrow arrays give the same clusters as rows. */
  private static void arrow() {
    try (RootAllocator memory = new RootAllocator();
        Float8Vector x = new Float8Vector("x", memory);
        IntVector y = new IntVector("y", memory);
        Points columns = Points.ofDoubles(2);
        Points rows = Points.ofDoubles(2);
        Communicator alone = Communicator.connect(0, 1, Communicator.newToken(), mine -> new String[] {mine})) {
      for (int row = 0; row < 50; row++) {
        x.setSafe(row, row % 2 == 0 ? 0.25 * row : 100);
        y.setSafe(row, row);
        rows.add(new double[] {x.get(row), row});
      }
      x.setValueCount(50);
      y.setValueCount(50);
      ColumnVector[] vectors = {new ArrowColumnVector(x), new ArrowColumnVector(y)};
      ArrowPoints.add(columns, new ColumnarBatch(vectors, 50));
      org.ripieno.KMeans kmeans = new org.ripieno.KMeans().setK(3).setSeed(2);
      boolean isSame =
          Arrays.deepEquals(kmeans.fit(alone, columns).centroids(), kmeans.fit(alone, rows).centroids());
      x.setNull(3);
      String described = "";
      try {
        ArrowPoints.add(columns, new ColumnarBatch(vectors, 50));
      } catch (InputException refused) {
        described = refused.getMessage();
      }
      System.out.println("arrow " + isSame + " " + described);
    }
  }

  private static void refused(SparkSession spark) {
    Dataset<Row> table = spark.range(10).toDF("features");
    try {
      new RipienoKMeans().fit(table);
    } catch (IllegalArgumentException described) {
      System.out.println("refused " + described.getMessage());
    }
    try {
      new RipienoKMeans().setFeaturesCol("nothing").fit(table);
    } catch (IllegalArgumentException described) {
      System.out.println("refused " + described.getMessage());
    }
  }

  private static void killed(SparkSession spark) {
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    long begin = System.nanoTime();
    try {
      Ripieno.run(
          context.parallelize(List.of(1, 2, 3, 4), 4),
          4,
          (comm, rows) -> {
            comm.barrier();
            if (comm.rank() == 3) {
              Runtime.getRuntime().halt(1);
            }
            return comm.allreduce(new double[1], Op.SUM);
          });
    } catch (Exception described) {
      System.out.println("killed " + ((System.nanoTime() - begin) / 1_000_000_000));
    }
  }

  /** Requests more ranks than any master of the tests has slots for. */
  private static void slots(SparkSession spark) {
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    long begin = System.nanoTime();
    try {
      Ripieno.run(context.parallelize(List.of(1.0, 2.0), 2), 99, SparkPrograms::sum);
    } catch (TooFewSlotsException few) {
      System.out.println("slots " + (System.nanoTime() - begin) / 1_000_000_000 + " " + few.getMessage());
    }
  }

  private static void failing(SparkSession spark) {
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    try {
      Ripieno.run(
          context.parallelize(List.of(1, 2), 2),
          2,
          (comm, rows) -> {
            if (comm.rank() == 1) {
              throw new IllegalStateException("no such table");
            }
            return comm.allreduce(new double[1], Op.SUM);
          });
    } catch (Exception described) {
      System.out.println("failed " + described.getMessage().contains("no such table"));
    }
  }
}
