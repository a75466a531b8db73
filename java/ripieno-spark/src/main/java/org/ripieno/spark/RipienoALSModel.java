package org.ripieno.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.udf;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.ml.Model;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.param.ParamValidators;
import org.apache.spark.ml.util.DefaultParamsReadable;
import org.apache.spark.ml.util.DefaultParamsWritable;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.ml.util.MLWriter;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.ripieno.ALSModel;
import scala.collection.Seq;

/** The model that {@link RipienoALS} fits: the factors of users and items. Parameters and factors are saved. */
public class RipienoALSModel extends Model<RipienoALSModel> implements DefaultParamsWritable {
  private static final long serialVersionUID = 1;

  static final String NAN = "nan";
  private static final String DROP = "drop";
  private static final StructType FACTORS =
      new StructType()
          .add("id", DataTypes.LongType, false)
          .add("features", DataTypes.createArrayType(DataTypes.FloatType, false), false);

  private final String uid;
  private final IntParam rank;
  private final Param<String> userCol;
  private final Param<String> itemCol;
  private final Param<String> predictionCol;
  private final Param<String> coldStartStrategy;
  private transient Dataset<Row> userFactors;
  private transient Dataset<Row> itemFactors;

  /** Create a model without factors, for the reader. */
  public RipienoALSModel(String uid) {
    this.uid = uid;
    rank = new IntParam(uid, "rank", "number of factors of each user and item", ParamValidators.gtEq(1));
    userCol = new Param<>(uid, "userCol", "input column of user ids");
    itemCol = new Param<>(uid, "itemCol", "input column of item ids");
    predictionCol = new Param<>(uid, "predictionCol", "output column of predicted ratings");
    coldStartStrategy = coldStartParam(uid);
    setDefault(userCol, "user");
    setDefault(itemCol, "item");
    setDefault(predictionCol, "prediction");
    setDefault(coldStartStrategy, NAN);
  }

  /** Create a model from the parts of all ranks. */
  static RipienoALSModel of(String uid, SparkSession spark, List<ALSModel> parts) {
    RipienoALSModel model = new RipienoALSModel(uid);
    List<Row> users = new ArrayList<>();
    List<Row> items = new ArrayList<>();
    for (ALSModel part : parts) {
      addRows(users, part.users(), part.userFactors(), part.rank());
      addRows(items, part.items(), part.itemFactors(), part.rank());
    }
    model.set(model.rank, parts.get(0).rank());
    model.userFactors = spark.createDataFrame(users, FACTORS);
    model.itemFactors = spark.createDataFrame(items, FACTORS);
    return model;
  }

  static Param<String> coldStartParam(String uid) {
    return new Param<>(
        uid, "coldStartStrategy", "prediction for users or items without ratings: nan, or drop the row");
  }

  private static void addRows(List<Row> rows, long[] ids, float[] factors, int rank) {
    for (int row = 0; row < ids.length; row++) {
      rows.add(RowFactory.create(ids[row], Arrays.copyOfRange(factors, row * rank, (row + 1) * rank)));
    }
  }

  /** Return a reader of saved models. */
  public static MLReader<RipienoALSModel> read() {
    return new MLReader<RipienoALSModel>() {
      @Override
      public RipienoALSModel load(String path) {
        RipienoALSModel model = new ParamsReader().read().load(path);
        SparkSession spark = SparkSession.active();
        model.userFactors = spark.read().parquet(path + "/userFactors");
        model.itemFactors = spark.read().parquet(path + "/itemFactors");
        return model;
      }
    };
  }

  /** Load a saved model. */
  public static RipienoALSModel load(String path) {
    return read().load(path);
  }

  @Override
  public MLWriter write() {
    MLWriter params = DefaultParamsWritable.super.write();
    return new MLWriter() {
      @Override
      public void saveImpl(String path) {
        params.saveImpl(path);
        userFactors.write().parquet(path + "/userFactors");
        itemFactors.write().parquet(path + "/itemFactors");
      }
    };
  }

  /** Return the factors of users: a table of {@code id} and {@code features}. */
  public Dataset<Row> userFactors() {
    return userFactors;
  }

  /** Return the factors of items: a table of {@code id} and {@code features}. */
  public Dataset<Row> itemFactors() {
    return itemFactors;
  }

  /** Return the number of factors of each user and item. */
  public int getRank() {
    return (Integer) $(rank);
  }

  @Override
  public Dataset<Row> transform(Dataset<?> dataset) {
    transformSchema(dataset.schema());
    UDF2<Seq<Float>, Seq<Float>, Float> product =
        (user, item) -> user == null || item == null ? Float.NaN : dot(floats(user), floats(item));
    Column predicted =
        udf(product, DataTypes.FloatType).asNonNullable().apply(col("ripieno_user"), col("ripieno_item"));
    Dataset<Row> rows =
        joined(joined(dataset.toDF(), $(userCol), userFactors, "ripieno_user"), $(itemCol), itemFactors, "ripieno_item")
            .withColumn($(predictionCol), predicted)
            .drop("ripieno_user", "ripieno_item");
    return $(coldStartStrategy).equals(DROP) ? rows.na().drop("all", new String[] {$(predictionCol)}) : rows;
  }

  private static Dataset<Row> joined(Dataset<Row> rows, String column, Dataset<Row> factors, String name) {
    Dataset<Row> named = factors.select(col("id").as(name + "_id"), col("features").as(name));
    return rows.join(named, rows.col(column).cast(DataTypes.LongType).equalTo(named.col(name + "_id")), "left")
        .drop(name + "_id");
  }

  @Override
  public StructType transformSchema(StructType schema) {
    String strategy = $(coldStartStrategy);
    if (!strategy.equals(NAN) && !strategy.equals(DROP)) {
      throw new IllegalArgumentException("coldStartStrategy=" + strategy + ": expected nan or drop");
    }
    TableColumns.check(schema, userCol, $(userCol), TableColumns.INTEGERS);
    TableColumns.check(schema, itemCol, $(itemCol), TableColumns.INTEGERS);
    return TableColumns.with(schema, $(predictionCol), DataTypes.FloatType);
  }

  /**
   * Return the items with the highest predicted ratings for each user: a table of the user column and {@code
   * recommendations}, an array of items and ratings, best first.
   *
   * @param count maximum number of items per user
   */
  public Dataset<Row> recommendForAllUsers(int count) {
    return recommended(userFactors, $(userCol), itemFactors, $(itemCol), count);
  }

  /** Return the users with the highest predicted ratings for each item, as {@link #recommendForAllUsers} does. */
  public Dataset<Row> recommendForAllItems(int count) {
    return recommended(itemFactors, $(itemCol), userFactors, $(userCol), count);
  }

  /** Return the best candidates for each row. The factors of all candidates are copied to each task. */
  private static Dataset<Row> recommended(
      Dataset<Row> rows, String rowColumn, Dataset<Row> candidates, String candidateColumn, int count) {
    List<Row> collected = candidates.orderBy("id").collectAsList();
    long[] ids = collected.stream().mapToLong(row -> row.getLong(0)).toArray();
    float[][] factors = collected.stream().map(row -> floats(row.getSeq(1))).toArray(float[][]::new);
    DataType type =
        DataTypes.createArrayType(
            new StructType()
                .add(candidateColumn, DataTypes.LongType, false)
                .add("rating", DataTypes.FloatType, false),
            false);
    UDF1<Seq<Float>, Row[]> best =
        features -> {
          float[] own = floats(features);
          float[] ratings = new float[ids.length];
          for (int at = 0; at < ids.length; at++) {
            ratings[at] = dot(own, factors[at]);
          }
          return IntStream.range(0, ids.length)
              .boxed()
              .sorted((a, b) -> Float.compare(ratings[b], ratings[a]))
              .limit(count)
              .map(at -> RowFactory.create(ids[at], ratings[at]))
              .toArray(Row[]::new);
        };
    return rows.select(
        col("id").as(rowColumn), udf(best, type).asNonNullable().apply(col("features")).as("recommendations"));
  }

  private static float[] floats(Seq<Float> values) {
    float[] floats = new float[values.size()];
    for (int at = 0; at < floats.length; at++) {
      floats[at] = values.apply(at);
    }
    return floats;
  }

  private static float dot(float[] left, float[] right) {
    float sum = 0;
    for (int at = 0; at < left.length; at++) {
      sum += left[at] * right[at];
    }
    return sum;
  }

  @Override
  public RipienoALSModel copy(ParamMap extra) {
    RipienoALSModel copied = defaultCopy(extra);
    copied.userFactors = userFactors;
    copied.itemFactors = itemFactors;
    return copied.setParent(parent());
  }

  @Override
  public String uid() {
    return uid;
  }

  public IntParam rank() {
    return rank;
  }

  public Param<String> userCol() {
    return userCol;
  }

  public Param<String> itemCol() {
    return itemCol;
  }

  public Param<String> predictionCol() {
    return predictionCol;
  }

  public Param<String> coldStartStrategy() {
    return coldStartStrategy;
  }

  private static final class ParamsReader implements DefaultParamsReadable<RipienoALSModel> {}
}
