package org.ripieno.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.lit;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.DoubleStream;
import java.util.stream.LongStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.ml.Transformer;
import org.apache.spark.ml.param.DoubleParam;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.param.ParamValidators;
import org.apache.spark.ml.util.DefaultParamsReadable;
import org.apache.spark.ml.util.DefaultParamsWritable;
import org.apache.spark.ml.util.Identifiable$;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.ripieno.InputException;
import org.ripieno.PageRank;
import org.ripieno.PageRankModel;

/**
 * PageRank of a table of edges, as a transformer of Spark ML: {@code new RipienoPageRank().setWorkers(8).transform(df)}
 * returns a table with a row for each vertex and the columns {@code id} and {@code rank}.
 *
 * <p>Vertices are whole numbers of 0 or more. The ranks of all vertices pass through the driver. The metadata of the
 * column {@code rank} has {@code hasConverged}, whether the iteration ended by {@code tol} instead of {@code maxIter},
 * and {@code iterationCount}. If it has not converged, the transformer also logs a warning.
 */
public class RipienoPageRank extends Transformer implements DefaultParamsWritable {
  private static final long serialVersionUID = 1;
  private static final StructType RANKS = ranksWith(Metadata.empty());

  private final String uid;
  private final DoubleParam damping;
  private final DoubleParam tol;
  private final IntParam maxIter;
  private final IntParam workers;
  private final Param<String> srcCol;
  private final Param<String> dstCol;
  private final Param<String> weightCol;

  /** Create a transformer with this name. */
  public RipienoPageRank(String uid) {
    this.uid = uid;
    damping =
        new DoubleParam(uid, "damping", "probability that the walk follows an edge", ParamValidators.inRange(0, 1));
    tol = new DoubleParam(uid, "tol", "maximum change of the ranks, relative to vertices", ParamValidators.gtEq(0));
    maxIter = new IntParam(uid, "maxIter", "maximum number of iterations", ParamValidators.gtEq(1));
    workers = new IntParam(uid, "workers", "number of ranks; 0 means one per partition", ParamValidators.gtEq(0));
    srcCol = new Param<>(uid, "srcCol", "input column of the sources of edges");
    dstCol = new Param<>(uid, "dstCol", "input column of the targets of edges");
    weightCol = new Param<>(uid, "weightCol", "input column of the weights of edges");
    setDefault(damping, 0.85);
    setDefault(tol, 1e-12);
    setDefault(maxIter, 1000);
    setDefault(workers, 0);
    setDefault(srcCol, "src");
    setDefault(dstCol, "dst");
  }

  /** Create a transformer with a random name. */
  public RipienoPageRank() {
    this(Identifiable$.MODULE$.randomUID("ripieno-pagerank"));
  }

  /** Return a reader of saved transformers. */
  public static MLReader<RipienoPageRank> read() {
    return new TransformerReader().read();
  }

  /** Load a saved transformer. */
  public static RipienoPageRank load(String path) {
    return read().load(path);
  }

  @Override
  public Dataset<Row> transform(Dataset<?> dataset) {
    transformSchema(dataset.schema());
    boolean isWeighted = isDefined(weightCol);
    Column weight = isWeighted ? col($(weightCol)).cast(DataTypes.DoubleType) : lit(1.0);
    JavaRDD<Row> rows =
        dataset
            .select(col($(srcCol)).cast(DataTypes.LongType), col($(dstCol)).cast(DataTypes.LongType), weight)
            .toJavaRDD();
    int requestedWorkers = (Integer) $(workers);
    PageRank pageRank =
        new PageRank().setDamping((Double) $(damping)).setTol((Double) $(tol)).setMaxIter((Integer) $(maxIter));
    List<PageRankModel> parts =
        Ripieno.run(
            rows,
            requestedWorkers == 0 ? rows.getNumPartitions() : requestedWorkers,
            (communicator, own) -> {
              LongStream.Builder sources = LongStream.builder();
              LongStream.Builder targets = LongStream.builder();
              DoubleStream.Builder weights = DoubleStream.builder();
              while (own.hasNext()) {
                Row row = own.next();
                if (row.anyNull()) {
                  throw new InputException("an edge has a null: expected a source, a target and a weight");
                }
                sources.add(row.getLong(0));
                targets.add(row.getLong(1));
                if (isWeighted) {
                  weights.add(row.getDouble(2));
                }
              }
              double[] ownWeights = isWeighted ? weights.build().toArray() : null;
              return pageRank.fit(communicator, sources.build().toArray(), targets.build().toArray(), ownWeights);
            });
    List<Row> ranks = new ArrayList<>();
    for (PageRankModel part : parts) {
      for (int vertex = 0; vertex < part.vertices().length; vertex++) {
        ranks.add(RowFactory.create(part.vertices()[vertex], part.ranks()[vertex]));
      }
    }
    PageRankModel first = parts.get(0);
    if (!first.hasConverged()) {
      logWarning(
          () ->
              "after maxIter="
                  + $(maxIter)
                  + " iterations the ranks still changed by more than tol="
                  + $(tol)
                  + " times the number of vertices: allow more iterations, or a higher tol");
    }
    Metadata end =
        new MetadataBuilder()
            .putBoolean("hasConverged", first.hasConverged())
            .putLong("iterationCount", first.iterationCount())
            .build();
    return dataset.sparkSession().createDataFrame(ranks, ranksWith(end));
  }

  /** Return the schema of the result, with metadata of its ranks. */
  private static StructType ranksWith(Metadata metadata) {
    return new StructType()
        .add("id", DataTypes.LongType, false)
        .add("rank", DataTypes.DoubleType, false, metadata);
  }

  @Override
  public StructType transformSchema(StructType schema) {
    TableColumns.check(schema, srcCol, $(srcCol), TableColumns.INTEGERS);
    TableColumns.check(schema, dstCol, $(dstCol), TableColumns.INTEGERS);
    if (isDefined(weightCol)) {
      TableColumns.check(schema, weightCol, $(weightCol), TableColumns.NUMBERS);
    }
    return RANKS;
  }

  @Override
  public RipienoPageRank copy(ParamMap extra) {
    return defaultCopy(extra);
  }

  @Override
  public String uid() {
    return uid;
  }

  /** Probability that the walk follows an edge instead of jumping; default 0.85. */
  public DoubleParam damping() {
    return damping;
  }

  /** Stop when the ranks change by less than this times the number of vertices; default 1e-12. */
  public DoubleParam tol() {
    return tol;
  }

  /** Maximum number of iterations; default 1000. */
  public IntParam maxIter() {
    return maxIter;
  }

  /** Number of ranks; default 0, which means one per partition. */
  public IntParam workers() {
    return workers;
  }

  /** The input column of sources; default "src". */
  public Param<String> srcCol() {
    return srcCol;
  }

  /** The input column of targets; default "dst". */
  public Param<String> dstCol() {
    return dstCol;
  }

  /** The input column of weights, numbers of 0 or more; not set by default, so parallel edges count once. */
  public Param<String> weightCol() {
    return weightCol;
  }

  public RipienoPageRank setDamping(double value) {
    return (RipienoPageRank) set(damping, value);
  }

  public RipienoPageRank setTol(double value) {
    return (RipienoPageRank) set(tol, value);
  }

  public RipienoPageRank setMaxIter(int value) {
    return (RipienoPageRank) set(maxIter, value);
  }

  public RipienoPageRank setWorkers(int value) {
    return (RipienoPageRank) set(workers, value);
  }

  public RipienoPageRank setSrcCol(String value) {
    return (RipienoPageRank) set(srcCol, value);
  }

  public RipienoPageRank setDstCol(String value) {
    return (RipienoPageRank) set(dstCol, value);
  }

  public RipienoPageRank setWeightCol(String value) {
    return (RipienoPageRank) set(weightCol, value);
  }

  private static final class TransformerReader implements DefaultParamsReadable<RipienoPageRank> {}
}
