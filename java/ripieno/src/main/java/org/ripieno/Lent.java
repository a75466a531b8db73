package org.ripieno;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.stream.Stream;

/** A pool of direct memory for calls on arrays. The garbage collector moves arrays, and it must not wait for ranks. */
final class Lent implements AutoCloseable {
  private static final int LEAST_BYTES = 256;
  private static final int LARGEST_POWER = 30;

  /** Free buffers, by the power of two of their size. */
  private static final List<Deque<Lent>> FREE =
      Stream.<Deque<Lent>>generate(ConcurrentLinkedDeque::new).limit(LARGEST_POWER + 1).toList();

  final ByteBuffer bytes;
  final long address;

  private Lent(int byteCount) {
    bytes = ByteBuffer.allocateDirect(byteCount).order(ByteOrder.nativeOrder());
    address = Native.address(bytes);
  }

  /** Return a buffer of at least {@code byteCount} bytes, with its limit set to that count. */
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

  /** Return the buffer to the pool. */
  @Override
  public void close() {
    int capacity = bytes.capacity();
    if (Integer.bitCount(capacity) == 1) {
      FREE.get(Integer.numberOfTrailingZeros(capacity)).addFirst(this);
    }
  }
}
