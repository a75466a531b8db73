package org.ripieno;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.stream.Stream;

/**
 * A buffer of a pool of direct memory. Calls copy arrays to such buffers, because the garbage collector may move
 * arrays.
 */
final class PooledBuffer implements AutoCloseable {
  private static final int MIN_BYTES = 256;
  private static final int MAX_POWER = 30;

  /** Free buffers, by the binary logarithm of their size. */
  private static final List<Deque<PooledBuffer>> FREE =
      Stream.<Deque<PooledBuffer>>generate(ConcurrentLinkedDeque::new).limit(MAX_POWER + 1).toList();

  final ByteBuffer bytes;
  final long address;

  private PooledBuffer(int byteCount) {
    bytes = ByteBuffer.allocateDirect(byteCount).order(ByteOrder.nativeOrder());
    address = Native.address(bytes);
  }

  /** Return a buffer of at least {@code byteCount} bytes, with its limit set to that count. */
  static PooledBuffer of(long byteCount) {
    if (byteCount > Integer.MAX_VALUE - 8) {
      throw new InputException(
          byteCount + " bytes in one array: expected less than 2 GiB, or a direct buffer for each part");
    }
    int power = 64 - Long.numberOfLeadingZeros(Math.max(byteCount, MIN_BYTES) - 1);
    PooledBuffer buffer = power > MAX_POWER ? null : FREE.get(power).pollFirst();
    if (buffer == null) {
      buffer = new PooledBuffer(power > MAX_POWER ? (int) byteCount : 1 << power);
    }
    buffer.bytes.clear().limit((int) byteCount);
    return buffer;
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
