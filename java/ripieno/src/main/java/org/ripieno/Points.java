package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** A rank's rows in native memory, as input of kernels. Append-only, and not thread-safe. */
public final class Points implements AutoCloseable {
  private static final int STAGED_BYTES = 1 << 20;
  // Numbers of the element types in native code.
  static final int FLOAT = 4;
  static final int DOUBLE = 5;

  private final int element;
  private final int columns;
  private final long address;
  private final Cleaner.Cleanable cleanable;

  /** Buffer for rows that are not yet copied to native memory. */
  private final PooledBuffer staged;

  private long count;

  private Points(int element, int columns) {
    if (columns < 1) {
      throw new InputException("columns=" + columns + ": expected 1 or more");
    }
    this.element = element;
    this.columns = columns;
    address = Native.newRows(element, columns);
    cleanable = NativeCleaner.register(this, address, Native::freeRows);
    staged = PooledBuffer.of(Math.max(STAGED_BYTES, (long) columns * Double.BYTES));
  }

  /** Create an empty set of float points. */
  public static Points ofFloats(int columns) {
    return new Points(FLOAT, columns);
  }

  /** Create an empty set of double points. */
  public static Points ofDoubles(int columns) {
    return new Points(DOUBLE, columns);
  }

  /** Append a row with one value per column. */
  public void add(double[] row) {
    ByteBuffer buffer = bufferForRow(row.length);
    for (double value : row) {
      put(buffer, value);
    }
    count++;
  }

  /** Append a row with one value per column. */
  public void add(float[] row) {
    ByteBuffer buffer = bufferForRow(row.length);
    for (float value : row) {
      put(buffer, value);
    }
    count++;
  }

  /**
   * Append rows from separate columns in memory, such as Arrow columns.
   *
   * @param addresses start address of each column's values
   * @param types of each column: byte.class, short.class, int.class, long.class, float.class or double.class
   * @param rowCount number of values per column; the columns must not move until this returns
   */
  public void addColumns(long[] addresses, Class<?>[] types, int rowCount) {
    if (addresses.length != columns || types.length != columns || rowCount < 0) {
      throw new InputException(
          addresses.length + " columns of " + types.length + " types: expected " + columns + " of each");
    }
    flush();
    Native.addColumns(address, addresses, Arrays.stream(types).mapToInt(Values::elementOfType).toArray(), rowCount);
    Reference.reachabilityFence(this);
    count += rowCount;
  }

  /** Return the number of rows. */
  public long count() {
    return count;
  }

  /** Return the number of columns. */
  public int columns() {
    return columns;
  }

  /** Free the memory. */
  @Override
  public void close() {
    cleanable.clean();
  }

  /** Return the address of the native object, after copying all pending rows. */
  long address() {
    flush();
    return address;
  }

  private ByteBuffer bufferForRow(int length) {
    if (length != columns) {
      throw new InputException("a row of " + length + " values: expected " + columns + ", the number of columns");
    }
    if (staged.bytes.remaining() < columns * Double.BYTES) {
      flush();
    }
    return staged.bytes;
  }

  private void put(ByteBuffer buffer, double value) {
    if (element == FLOAT) {
      buffer.putFloat((float) value);
    } else {
      buffer.putDouble(value);
    }
  }

  private void flush() {
    if (staged.bytes.position() > 0) {
      Native.addRows(address, staged.address, staged.bytes.position());
      staged.bytes.position(0);
      Reference.reachabilityFence(this);
    }
  }
}
