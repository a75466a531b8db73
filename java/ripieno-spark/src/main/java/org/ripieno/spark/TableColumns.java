package org.ripieno.spark;

import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.param.Param;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Checks the input columns of a table and adds its output columns. */
final class TableColumns {
  /** Column types of ids. */
  static final List<DataType> INTEGERS =
      List.of(DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType, DataTypes.LongType);

  /** Column types of weights and ratings. */
  static final List<DataType> NUMBERS =
      Stream.concat(INTEGERS.stream(), Stream.of(DataTypes.FloatType, DataTypes.DoubleType)).toList();

  private TableColumns() {}

  /** Check that a table has a column of one of these types. */
  static void check(StructType schema, Param<String> column, String name, List<DataType> types) {
    DataType type = typeOf(schema, column.name(), name);
    if (!types.contains(type)) {
      String expected = String.join(", ", types.stream().map(DataType::simpleString).toList());
      throw new IllegalArgumentException(
          "column " + name + " is of type " + type.simpleString() + ": expected one of " + expected);
    }
  }

  /** Return the schema with another column. */
  static StructType with(StructType schema, String prediction, DataType type) {
    if (Arrays.asList(schema.fieldNames()).contains(prediction)) {
      throw new IllegalArgumentException("predictionCol=" + prediction + ": this column exists already");
    }
    return schema.add(prediction, type, false);
  }

  static StructType withPrediction(StructType schema, String features, String prediction) {
    DataType type = typeOf(schema, "featuresCol", features);
    if (!type.equals(SQLDataTypes.VectorType())) {
      throw new IllegalArgumentException(
          "column " + features + " is of type " + type.simpleString() + ": expected vectors (use VectorAssembler)");
    }
    return with(schema, prediction, DataTypes.IntegerType);
  }

  private static DataType typeOf(StructType schema, String parameter, String name) {
    if (!Arrays.asList(schema.fieldNames()).contains(name)) {
      throw new IllegalArgumentException(
          parameter + "=" + name + ": expected one of " + String.join(", ", schema.fieldNames()));
    }
    return schema.apply(name).dataType();
  }
}
