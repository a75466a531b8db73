package org.ripieno.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.lit;

import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.ml.Estimator;
import org.apache.spark.ml.param.BooleanParam;
import org.apache.spark.ml.param.DoubleParam;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.LongParam;
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
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.ripieno.ALS;
import org.ripieno.ALSModel;
import org.ripieno.InputException;

/**
 * Alternating least squares as a Spark ML estimator, on ranks that communicate: {@code new
 * RipienoALS().setRank(32).setWorkers(8).fit(ratings)}.
 *
 * <p>Parameters have the names, defaults and meanings of {@code org.apache.spark.ml.recommendation.ALS}, except that
 * {@code regParam} of implicit ratings is not multiplied by the number of ratings. {@code workers} and {@code threads}
 * are additional. The factors of all users and items pass through the driver.
 */
public class RipienoALS extends Estimator<RipienoALSModel> implements DefaultParamsWritable {
  private static final long serialVersionUID = 1;

  private final String uid;
  private final IntParam rank;
  private final IntParam maxIter;
  private final DoubleParam regParam;
  private final BooleanParam implicitPrefs;
  private final DoubleParam alpha;
  private final LongParam seed;
  private final IntParam workers;
  private final IntParam threads;
  private final Param<String> userCol;
  private final Param<String> itemCol;
  private final Param<String> ratingCol;
  private final Param<String> predictionCol;
  private final Param<String> coldStartStrategy;

  /** Create an estimator with this name. */
  public RipienoALS(String uid) {
    this.uid = uid;
    rank = new IntParam(uid, "rank", "number of factors of each user and item", ParamValidators.gtEq(1));
    maxIter = new IntParam(uid, "maxIter", "number of iterations", ParamValidators.gtEq(1));
    regParam = new DoubleParam(uid, "regParam", "weight of the squared factors", ParamValidators.gt(0));
    implicitPrefs = new BooleanParam(uid, "implicitPrefs", "whether ratings are counts of observed actions");
    alpha = new DoubleParam(uid, "alpha", "weight per unit of an implicit rating", ParamValidators.gt(0));
    seed = new LongParam(uid, "seed", "seed of the initial factors");
    workers = new IntParam(uid, "workers", "number of ranks; 0 means one per partition", ParamValidators.gtEq(0));
    threads = new IntParam(uid, "threads", "threads per rank", ParamValidators.gtEq(1));
    userCol = new Param<>(uid, "userCol", "input column of user ids");
    itemCol = new Param<>(uid, "itemCol", "input column of item ids");
    ratingCol = new Param<>(uid, "ratingCol", "input column of ratings");
    predictionCol = new Param<>(uid, "predictionCol", "output column of predicted ratings");
    coldStartStrategy = RipienoALSModel.coldStartParam(uid);
    setDefault(rank, 10);
    setDefault(maxIter, 10);
    setDefault(regParam, 0.1);
    setDefault(implicitPrefs, false);
    setDefault(alpha, 1.0);
    setDefault(seed, 0L);
    setDefault(workers, 0);
    setDefault(threads, 1);
    setDefault(userCol, "user");
    setDefault(itemCol, "item");
    setDefault(ratingCol, "rating");
    setDefault(predictionCol, "prediction");
    setDefault(coldStartStrategy, RipienoALSModel.NAN);
  }

  /** Create an estimator with a random name. */
  public RipienoALS() {
    this(Identifiable$.MODULE$.randomUID("ripieno-als"));
  }

  /** Return a reader of saved estimators. */
  public static MLReader<RipienoALS> read() {
    return new EstimatorReader().read();
  }

  /** Load a saved estimator. */
  public static RipienoALS load(String path) {
    return read().load(path);
  }

  @Override
  public RipienoALSModel fit(Dataset<?> dataset) {
    transformSchema(dataset.schema());
    Column rating = $(ratingCol).isEmpty() ? lit(1f) : col($(ratingCol)).cast(DataTypes.FloatType);
    JavaRDD<Row> rows =
        dataset
            .select(col($(userCol)).cast(DataTypes.LongType), col($(itemCol)).cast(DataTypes.LongType), rating)
            .toJavaRDD();
    int requestedWorkers = (Integer) $(workers);
    ALS als =
        new ALS()
            .setRank((Integer) $(rank))
            .setMaxIter((Integer) $(maxIter))
            .setReg((Double) $(regParam))
            .setAlpha((Double) $(alpha))
            .setImplicit((Boolean) $(implicitPrefs))
            .setSeed((Long) $(seed))
            .setThreads((Integer) $(threads));
    List<ALSModel> parts =
        Ripieno.run(
            rows,
            requestedWorkers == 0 ? rows.getNumPartitions() : requestedWorkers,
            (communicator, own) -> {
              LongStream.Builder users = LongStream.builder();
              LongStream.Builder items = LongStream.builder();
              float[] ratings = new float[16];
              int count = 0;
              while (own.hasNext()) {
                Row row = own.next();
                if (row.anyNull()) {
                  throw new InputException("a rating has a null: expected a user, an item and a rating");
                }
                users.add(row.getLong(0));
                items.add(row.getLong(1));
                ratings = count < ratings.length ? ratings : Arrays.copyOf(ratings, 2 * count);
                ratings[count++] = row.getFloat(2);
              }
              return als.fit(
                  communicator, users.build().toArray(), items.build().toArray(), Arrays.copyOf(ratings, count));
            });
    RipienoALSModel model = RipienoALSModel.of(uid, dataset.sparkSession(), parts);
    return copyValues(model.setParent(this), ParamMap.empty());
  }

  @Override
  public StructType transformSchema(StructType schema) {
    TableColumns.check(schema, userCol, $(userCol), TableColumns.INTEGERS);
    TableColumns.check(schema, itemCol, $(itemCol), TableColumns.INTEGERS);
    if (!$(ratingCol).isEmpty()) {
      TableColumns.check(schema, ratingCol, $(ratingCol), TableColumns.NUMBERS);
    }
    return TableColumns.with(schema, $(predictionCol), DataTypes.FloatType);
  }

  @Override
  public RipienoALS copy(ParamMap extra) {
    return defaultCopy(extra);
  }

  @Override
  public String uid() {
    return uid;
  }

  /** Number of factors of each user and item; default 10. */
  public IntParam rank() {
    return rank;
  }

  /** Number of iterations; default 10. */
  public IntParam maxIter() {
    return maxIter;
  }

  /** Weight of the squared factors; explicit ratings multiply it by the number of ratings; default 0.1. */
  public DoubleParam regParam() {
    return regParam;
  }

  /** Whether ratings are counts of observed actions; default false. */
  public BooleanParam implicitPrefs() {
    return implicitPrefs;
  }

  /** Weight per unit of an implicit rating; default 1. */
  public DoubleParam alpha() {
    return alpha;
  }

  /** Seed of the initial factors; default 0. */
  public LongParam seed() {
    return seed;
  }

  /** Number of ranks; default 0, which means one per partition. */
  public IntParam workers() {
    return workers;
  }

  /** Threads per rank; default 1. */
  public IntParam threads() {
    return threads;
  }

  /** The input column of user ids, whole numbers; default "user". */
  public Param<String> userCol() {
    return userCol;
  }

  /** The input column of item ids, whole numbers; default "item". */
  public Param<String> itemCol() {
    return itemCol;
  }

  /** The input column of ratings; default "rating". If it is empty, each rating is 1. */
  public Param<String> ratingCol() {
    return ratingCol;
  }

  /** The output column of predicted ratings; default "prediction". */
  public Param<String> predictionCol() {
    return predictionCol;
  }

  /** Prediction for a user or item without ratings: "nan" (default), or "drop" to leave the row out. */
  public Param<String> coldStartStrategy() {
    return coldStartStrategy;
  }

  public RipienoALS setRank(int value) {
    return (RipienoALS) set(rank, value);
  }

  public RipienoALS setMaxIter(int value) {
    return (RipienoALS) set(maxIter, value);
  }

  public RipienoALS setRegParam(double value) {
    return (RipienoALS) set(regParam, value);
  }

  public RipienoALS setImplicitPrefs(boolean value) {
    return (RipienoALS) set(implicitPrefs, value);
  }

  public RipienoALS setAlpha(double value) {
    return (RipienoALS) set(alpha, value);
  }

  public RipienoALS setSeed(long value) {
    return (RipienoALS) set(seed, value);
  }

  public RipienoALS setWorkers(int value) {
    return (RipienoALS) set(workers, value);
  }

  public RipienoALS setThreads(int value) {
    return (RipienoALS) set(threads, value);
  }

  public RipienoALS setUserCol(String value) {
    return (RipienoALS) set(userCol, value);
  }

  public RipienoALS setItemCol(String value) {
    return (RipienoALS) set(itemCol, value);
  }

  public RipienoALS setRatingCol(String value) {
    return (RipienoALS) set(ratingCol, value);
  }

  public RipienoALS setPredictionCol(String value) {
    return (RipienoALS) set(predictionCol, value);
  }

  public RipienoALS setColdStartStrategy(String value) {
    return (RipienoALS) set(coldStartStrategy, value);
  }

  private static final class EstimatorReader implements DefaultParamsReadable<RipienoALS> {}
}
