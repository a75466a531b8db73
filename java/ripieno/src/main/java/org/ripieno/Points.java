package org.ripieno;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** A rank's rows of points, outside of Java's heap, where kernels read them. They only grow; one thread at a time. */
public final class Points implements AutoCloseable {
  private static final int STAGED_BYTES = 1 << 20;
  // As native code numbers the types.
  static final int FLOAT = 4;
  static final int DOUBLE = 5;

  private final int element;
  private final int columns;
  private final long address;
  private final Cleaner.Cleanable owned;

  /** Rows on their way. */
  private final Lent staged;

  private long count;

  private Points(int element, int columns) {
    if (columns < 1) {
      throw new InputException("columns=" + columns + ": expected 1 or more");
    }
    this.element = element;
    this.columns = columns;
    address = Native.newRows(element, columns);
    owned = Owned.by(this, address, Native::freeRows);
    staged = Lent.of(Math.max(STAGED_BYTES, (long) columns * Double.BYTES));
  }

  /** None yet, of float. */
  public static Points ofFloats(int columns) {
    return new Points(FLOAT, columns);
  }

  /** None yet, of double. */
  public static Points ofDoubles(int columns) {
    return new Points(DOUBLE, columns);
  }

  /** Adds a row of as many values as there are columns. */
  public void add(double[] row) {
    ByteBuffer room = roomForRow(row.length);
    for (double value : row) {
      put(room, value);
    }
    count++;
  }

  /** Adds a row of as many values as there are columns. */
  public void add(float[] row) {
    ByteBuffer room = roomForRow(row.length);
    for (float value : row) {
      put(room, value);
    }
    count++;
  }

  /**
   * Adds rows whose columns lie apart in memory, as those of Arrow do.
   *
   * @param addresses where the values of each column begin
   * @param types of each column: byte.class, short.class, int.class, long.class, float.class or double.class
   * @param rowCount how many values each column has, which stay there until this returns
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

  /** How many rows. */
  public long count() {
    return count;
  }

  /** Values of a row. */
  public int columns() {
    return columns;
  }

  /** Frees the memory. */
  @Override
  public void close() {
    owned.clean();
  }

  boolean areFloats() {
    return element == FLOAT;
  }

  int element() {
    return element;
  }

  /** Where native code has them, all. */
  long address() {
    flush();
    return address;
  }

  /** An array for so many values of their type. */
  Object newValues(long valueCount) {
    return areFloats() ? new float[Math.toIntExact(valueCount)] : new double[Math.toIntExact(valueCount)];
  }

  /** A row, of their type. */
  Object row(long number) {
    Object row = newValues(columns);
    try (Values memory = Values.room(row)) {
      Native.takeRow(address(), number, memory.address, memory.bytes);
      memory.copyBack();
    }
    Reference.reachabilityFence(this);
    return row;
  }

  private ByteBuffer roomForRow(int length) {
    if (length != columns) {
      throw new InputException("a row of " + length + " values: expected " + columns + ", as the points have columns");
    }
    if (staged.bytes.remaining() < columns * Double.BYTES) {
      flush();
    }
    return staged.bytes;
  }

  private void put(ByteBuffer room, double value) {
    if (areFloats()) {
      room.putFloat((float) value);
    } else {
      room.putDouble(value);
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
