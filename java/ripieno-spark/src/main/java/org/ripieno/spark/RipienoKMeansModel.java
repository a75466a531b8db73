package org.ripieno.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.udf;

import org.apache.spark.ml.Model;
import org.apache.spark.ml.clustering.KMeansSummary;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.param.DoubleArrayArrayParam;
import org.apache.spark.ml.param.DoubleParam;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.util.DefaultParamsReadable;
import org.apache.spark.ml.util.DefaultParamsWritable;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The model that {@link RipienoKMeans} fits. Its whole state is saved as parameters, except for the {@link #summary},
 * as in MLlib.
 */
public class RipienoKMeansModel extends Model<RipienoKMeansModel> implements DefaultParamsWritable {
  private static final long serialVersionUID = 1;

  private final String uid;
  private final DoubleArrayArrayParam clusterCenters;
  private final DoubleParam trainingCost;
  private final IntParam iterationCount;
  private final Param<String> featuresCol;
  private final Param<String> predictionCol;

  /** The table of the fit, or null for a loaded model. */
  private transient Dataset<?> table;

  /** Create a model without centroids, for the reader. */
  public RipienoKMeansModel(String uid) {
    this.uid = uid;
    clusterCenters = new DoubleArrayArrayParam(this, "clusterCenters", "the centroids");
    trainingCost = new DoubleParam(uid, "trainingCost", "sum of the squared distances of all rows");
    iterationCount = new IntParam(uid, "iterationCount", "number of iterations");
    featuresCol = new Param<>(uid, "featuresCol", "input column of vectors");
    predictionCol = new Param<>(uid, "predictionCol", "output column of labels");
    setDefault(featuresCol, "features");
    setDefault(predictionCol, "prediction");
  }

  RipienoKMeansModel(String uid, double[][] centroids, double cost, int iterations, Dataset<?> table) {
    this(uid);
    this.table = table;
    set(clusterCenters, centroids);
    set(trainingCost, cost);
    set(iterationCount, iterations);
  }

  /** Return a reader of saved models. */
  public static MLReader<RipienoKMeansModel> read() {
    return new ModelReader().read();
  }

  /** Load a saved model. */
  public static RipienoKMeansModel load(String path) {
    return read().load(path);
  }

  /** Return the centroids, one per row. */
  public double[][] getClusterCenters() {
    return $(clusterCenters);
  }

  /** Return the sum of the squared distances of all rows to their centroids. */
  public double getTrainingCost() {
    return (Double) $(trainingCost);
  }

  /** Return the number of iterations. */
  public int getIterationCount() {
    return (Integer) $(iterationCount);
  }

  /** Return whether the model has a summary: it was fitted in this process, not loaded. */
  public boolean hasSummary() {
    return table != null;
  }

  /**
   * Return the summary of the fit, as MLlib has it: predictions, cluster sizes, training cost and iteration count.
   * Predictions and sizes are computed when they are used.
   *
   * @throws IllegalStateException if the model was loaded
   */
  public KMeansSummary summary() {
    if (!hasSummary()) {
      throw new IllegalStateException(uid + " was loaded: expected a fitted model, because summaries are not saved");
    }
    return new KMeansSummary(
        transform(table),
        $(predictionCol),
        $(featuresCol),
        getClusterCenters().length,
        getIterationCount(),
        getTrainingCost());
  }

  /** Return the index of the centroid nearest to a point; ties go to the first. */
  public int predict(Vector point) {
    return nearest(getClusterCenters(), point.toArray());
  }

  @Override
  public Dataset<Row> transform(Dataset<?> dataset) {
    transformSchema(dataset.schema());
    double[][] centroids = getClusterCenters();
    UDF1<Vector, Integer> label = point -> nearest(centroids, point.toArray());
    UserDefinedFunction labeled = udf(label, DataTypes.IntegerType).asNonNullable();
    return dataset.withColumn($(predictionCol), labeled.apply(col($(featuresCol))));
  }

  @Override
  public StructType transformSchema(StructType schema) {
    return TableColumns.withPrediction(schema, $(featuresCol), $(predictionCol));
  }

  @Override
  public RipienoKMeansModel copy(ParamMap extra) {
    RipienoKMeansModel copied = defaultCopy(extra);
    copied.table = table;
    return copied.setParent(parent());
  }

  @Override
  public String uid() {
    return uid;
  }

  public DoubleArrayArrayParam clusterCenters() {
    return clusterCenters;
  }

  public DoubleParam trainingCost() {
    return trainingCost;
  }

  public IntParam iterationCount() {
    return iterationCount;
  }

  public Param<String> featuresCol() {
    return featuresCol;
  }

  public Param<String> predictionCol() {
    return predictionCol;
  }

  private static int nearest(double[][] centroids, double[] point) {
    int label = 0;
    double best = Double.POSITIVE_INFINITY;
    for (int number = 0; number < centroids.length; number++) {
      double distance = 0;
      for (int column = 0; column < point.length; column++) {
        double difference = point[column] - centroids[number][column];
        distance += difference * difference;
      }
      if (distance < best) {
        best = distance;
        label = number;
      }
    }
    return label;
  }

  private static final class ModelReader implements DefaultParamsReadable<RipienoKMeansModel> {}
}
