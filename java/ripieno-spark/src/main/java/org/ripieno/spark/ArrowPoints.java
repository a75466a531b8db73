package org.ripieno.spark;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.ripieno.InputException;
import org.ripieno.Points;

/** Appends Arrow columns to points with one copy, without an object per row or value. */
public final class ArrowPoints {
  private static final Map<Class<? extends ValueVector>, Class<?>> TYPES =
      Map.of(
          TinyIntVector.class, byte.class,
          SmallIntVector.class, short.class,
          IntVector.class, int.class,
          BigIntVector.class, long.class,
          Float4Vector.class, float.class,
          Float8Vector.class, double.class);

  private ArrowPoints() {}

  /**
   * Append the rows of a batch. The columns of the batch are the columns of the points, in the same order.
   *
   * @throws InputException if a column is not an Arrow vector, has no numeric type, or contains nulls
   */
  public static void add(Points points, ColumnarBatch batch) {
    List<ValueVector> vectors =
        IntStream.range(0, batch.numCols()).mapToObj(column -> vector(batch, column)).toList();
    add(points, vectors, batch.numRows());
  }

  /** Append {@code rowCount} rows of Arrow vectors, each with at least that many values. */
  public static void add(Points points, List<? extends ValueVector> columns, int rowCount) {
    long[] addresses = new long[columns.size()];
    Class<?>[] types = new Class<?>[columns.size()];
    for (int column = 0; column < types.length; column++) {
      ValueVector vector = columns.get(column);
      types[column] = TYPES.get(vector.getClass());
      if (types[column] == null) {
        throw new InputException(
            "column " + column + " is " + vector.getMinorType() + ": expected integers or floating-point numbers");
      }
      if (vector.getNullCount() > 0) {
        throw new InputException("column " + column + " has " + vector.getNullCount() + " nulls: expected none");
      }
      if (vector.getValueCount() < rowCount) {
        throw new InputException(
            "column " + column + " has " + vector.getValueCount() + " values: expected " + rowCount + " or more");
      }
      addresses[column] = ((BaseFixedWidthVector) vector).getDataBufferAddress();
    }
    points.addColumns(addresses, types, rowCount);
  }

  private static ValueVector vector(ColumnarBatch batch, int column) {
    ColumnVector vector = batch.column(column);
    if (!(vector instanceof ArrowColumnVector arrow)) {
      throw new InputException(
          "column " + column + " is a " + vector.getClass().getSimpleName() + ": expected an ArrowColumnVector");
    }
    return arrow.getValueVector();
  }
}
