package org.ripieno;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * Rows with {@code long} or string keys. Each key has one row of {@code width} elements of one type, or, after {@link
 * Combine#CONCAT}, several adjacent rows.
 */
public final class KeyedRows {
  private final Object keys;
  private final Object values;
  private final int width;
  private final long[] counts;

  private KeyedRows(Object keys, Object values, int width, long[] counts) {
    this.keys = keys;
    this.values = values;
    this.width = width;
    this.counts = counts;
  }

  /**
   * Create rows with {@code long} keys.
   *
   * @param keys one for each row; they may repeat
   * @param values an array of {@code keys.length * width} elements, row after row
   * @param width elements per row
   */
  public static KeyedRows of(long[] keys, Object values, int width) {
    return validate(keys, keys.length, values, width);
  }

  /** Create rows with string keys. */
  public static KeyedRows of(String[] keys, Object values, int width) {
    return validate(keys, keys.length, values, width);
  }

  /** Return the keys, if they are numbers. */
  public long[] longKeys() {
    return (long[]) keys;
  }

  /** Return the keys, if they are strings. */
  public String[] stringKeys() {
    return (String[]) keys;
  }

  /** Return the rows, one after the other: {@code rows.values(double[].class)}. */
  public <A> A values(Class<A> type) {
    return type.cast(values);
  }

  /** Return the number of elements per row. */
  public int width() {
    return width;
  }

  /** Return the number of rows per key, or null if each key has one row. */
  public long[] counts() {
    return counts;
  }

  /** Return the number of keys. */
  public int keyCount() {
    return keys instanceof long[] numbers ? numbers.length : ((String[]) keys).length;
  }

  KeyedRows regrouped(Communicator communicator, Combine combine, int threads) {
    boolean hasLongKeys = keys instanceof long[];
    byte[][] texts = hasLongKeys ? null : encoded((String[]) keys);
    long block;
    try (Values offsets = Values.of(hasLongKeys ? new long[0] : ends(texts));
        Values data = Values.of(hasLongKeys ? keys : joined(texts));
        Values memory = Values.of(values)) {
      block =
          Native.regroup(
              communicator.address(),
              offsets.address,
              offsets.bytes,
              data.address,
              data.bytes,
              memory.element,
              width,
              memory.address,
              memory.bytes,
              combine.number(),
              threads);
    }
    Reference.reachabilityFence(communicator);
    return take(block, hasLongKeys);
  }

  private KeyedRows take(long block, boolean hasLongKeys) {
    long[] sizes = new long[4];
    Native.blockSizes(block, sizes);
    int keyCount = Math.toIntExact(sizes[0]);
    Object ownKeys = hasLongKeys ? new long[keyCount] : new byte[Math.toIntExact(sizes[1])];
    long[] ends = new long[hasLongKeys ? 0 : keyCount + 1];
    long[] ownCounts = new long[sizes[2] == 0 ? 0 : keyCount];
    Object ownValues = Values.newArray(values, sizes[3] / Values.sizeOf(values));
    try (Values offsets = Values.uninitialized(ends);
        Values data = Values.uninitialized(ownKeys);
        Values numbers = Values.uninitialized(ownCounts);
        Values memory = Values.uninitialized(ownValues)) {
      Native.takeBlock(
          block,
          offsets.address,
          offsets.bytes,
          data.address,
          data.bytes,
          numbers.address,
          numbers.bytes,
          memory.address,
          memory.bytes);
      for (Values each : new Values[] {offsets, data, numbers, memory}) {
        each.copyBack();
      }
    }
    Object resultKeys = hasLongKeys ? ownKeys : strings((byte[]) ownKeys, ends);
    return new KeyedRows(resultKeys, ownValues, width, sizes[2] == 0 ? null : ownCounts);
  }

  private static KeyedRows validate(Object keys, int keyCount, Object values, int width) {
    long count = Values.countOf(values);
    if (width < 0 || count != (long) keyCount * width) {
      throw new InputException(
          count + " elements for " + keyCount + " keys: expected a row of " + width + " for each");
    }
    return new KeyedRows(keys, values, width, null);
  }

  private static byte[][] encoded(String[] keys) {
    byte[][] texts = new byte[keys.length][];
    for (int key = 0; key < keys.length; key++) {
      texts[key] = keys[key].getBytes(StandardCharsets.UTF_8);
    }
    return texts;
  }

  private static long[] ends(byte[][] texts) {
    long[] ends = new long[texts.length + 1];
    for (int key = 0; key < texts.length; key++) {
      ends[key + 1] = ends[key] + texts[key].length;
    }
    return ends;
  }

  private static byte[] joined(byte[][] texts) {
    ByteBuffer all = ByteBuffer.allocate(Math.toIntExact(ends(texts)[texts.length]));
    for (byte[] text : texts) {
      all.put(text);
    }
    return all.array();
  }

  private static String[] strings(byte[] data, long[] ends) {
    String[] strings = new String[ends.length - 1];
    for (int key = 0; key < strings.length; key++) {
      int begin = (int) ends[key];
      strings[key] = new String(data, begin, (int) ends[key + 1] - begin, StandardCharsets.UTF_8);
    }
    return strings;
  }
}
