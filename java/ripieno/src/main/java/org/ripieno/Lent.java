package org.ripieno;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.stream.Stream;

/** Direct memory that calls borrow, for what lies in arrays: these move, and the collector may not wait for ranks. */
final class Lent implements AutoCloseable {
  private static final int LEAST_BYTES = 256;
  private static final int LARGEST_POWER = 30;

  /** Of each power of two, those that nobody uses. */
  private static final List<Deque<Lent>> FREE =
      Stream.<Deque<Lent>>generate(ConcurrentLinkedDeque::new).limit(LARGEST_POWER + 1).toList();

  final ByteBuffer bytes;
  final long address;

  private Lent(int byteCount) {
    bytes = ByteBuffer.allocateDirect(byteCount).order(ByteOrder.nativeOrder());
    address = Native.address(bytes);
  }

  /** So many bytes at least, with the limit set to them. */
  static Lent of(long byteCount) {
    if (byteCount > Integer.MAX_VALUE - 8) {
      throw new InputException(
          byteCount + " bytes in one array: expected less than 2 GiB, or a direct buffer for each part");
    }
    int power = 64 - Long.numberOfLeadingZeros(Math.max(byteCount, LEAST_BYTES) - 1);
    Lent found = power > LARGEST_POWER ? null : FREE.get(power).pollFirst();
    if (found == null) {
      found = new Lent(power > LARGEST_POWER ? (int) byteCount : 1 << power);
    }
    found.bytes.clear().limit((int) byteCount);
    return found;
  }

  /** Gives the memory back. */
  @Override
  public void close() {
    int capacity = bytes.capacity();
    if (Integer.bitCount(capacity) == 1) {
      FREE.get(Integer.numberOfTrailingZeros(capacity)).addFirst(this);
    }
  }
}
