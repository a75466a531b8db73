package org.ripieno.spark;

import java.util.Arrays;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Checks the input columns of a table and adds its output columns. */
final class TableColumns {
  private TableColumns() {}

  static StructType withPrediction(StructType schema, String features, String prediction) {
    if (!Arrays.asList(schema.fieldNames()).contains(features)) {
      throw new IllegalArgumentException(
          "featuresCol=" + features + ": expected one of " + String.join(", ", schema.fieldNames()));
    }
    DataType type = schema.apply(features).dataType();
    if (!type.equals(SQLDataTypes.VectorType())) {
      throw new IllegalArgumentException(
          "column "
              + features
              + " is of type "
              + type.simpleString()
              + ": expected vectors (use VectorAssembler)");
    }
    if (Arrays.asList(schema.fieldNames()).contains(prediction)) {
      throw new IllegalArgumentException("predictionCol=" + prediction + ": this column exists already");
    }
    return schema.add(prediction, DataTypes.IntegerType, false);
  }
}
