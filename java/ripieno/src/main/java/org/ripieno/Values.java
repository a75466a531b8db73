package org.ripieno;

import java.lang.reflect.Array;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * The memory of a call: a direct buffer from its position to its limit, or a copy of an array of byte, short, int,
 * long, float or double.
 */
final class Values implements AutoCloseable {
  /** The types, indexed by their numbers in native code. */
  private static final Class<?>[] TYPES = {
    byte.class, short.class, int.class, long.class, float.class, double.class
  };

  private static final int[] SIZES_BYTES = {1, 2, 4, 8, 4, 8};
  private static final int FLOAT = 4;
  private static final int DOUBLE = 5;

  /** Stands for the missing second buffer of a call in place. */
  static final Values NONE = new Values(0, 0, 0, null, null, null);

  final int element;
  final long address;
  final long bytes;

  /** The object that owns the memory. It must stay reachable during the call. */
  final Object owner;

  /** The original array of a copy, or null. */
  private final Object array;

  private final PooledBuffer pooled;

  private Values(int element, long address, long bytes, Object owner, Object array, PooledBuffer pooled) {
    this.element = element;
    this.address = address;
    this.bytes = bytes;
    this.owner = owner;
    this.array = array;
    this.pooled = pooled;
  }

  /** Return a copy of an array's elements, or the buffer itself. */
  static Values of(Object values) {
    Values memory = uninitialized(values);
    if (memory.array != null) {
      copyIn(memory.pooled.bytes, memory.array);
    }
    return memory;
  }

  /** Return memory for the values without copying them, for output. */
  static Values uninitialized(Object values) {
    if (values instanceof Buffer buffer) {
      return ofBuffer(buffer);
    }
    int element = elementOf(values);
    PooledBuffer pooled = PooledBuffer.of((long) Array.getLength(values) * SIZES_BYTES[element]);
    return new Values(element, pooled.address, pooled.bytes.limit(), pooled.bytes, values, pooled);
  }

  /** Copy the memory back to the original array. */
  void copyBack() {
    if (array != null) {
      copyOut(pooled.bytes, array);
    }
  }

  /** Return a pooled buffer to its pool. */
  @Override
  public void close() {
    if (pooled != null) {
      pooled.close();
    }
  }

  boolean areFloating() {
    return element >= FLOAT;
  }

  /** Return the type number of an array or a buffer. */
  static int elementOf(Object values) {
    if (values instanceof Buffer buffer) {
      return elementOfBuffer(buffer);
    }
    int element = values == null ? -1 : Arrays.asList(TYPES).indexOf(values.getClass().getComponentType());
    if (element < 0) {
      String type = values == null ? "null" : values.getClass().getTypeName();
      throw new InputException(
          type + ": expected an array of byte, short, int, long, float or double, or a direct buffer of java.nio");
    }
    return element;
  }

  /** Return the number of a type. */
  static int elementOfType(Class<?> type) {
    int element = Arrays.asList(TYPES).indexOf(type);
    if (element < 0) {
      throw new InputException(type + ": expected byte, short, int, long, float or double");
    }
    return element;
  }

  static long sizeOf(Object values) {
    return SIZES_BYTES[elementOf(values)];
  }

  static long countOf(Object values) {
    return values instanceof Buffer buffer ? buffer.remaining() : Array.getLength(values);
  }

  /** Create a new array with the type of these values. */
  @SuppressWarnings("unchecked")
  static <A> A newArray(A like, long count) {
    int element = elementOf(like);
    if (like instanceof Buffer) {
      throw new InputException("cannot create an array from a buffer: pass an array, or call the in-place method");
    }
    if (count > Integer.MAX_VALUE - 8) {
      throw new InputException(count + " elements in one array: expected fewer than 2^31");
    }
    return (A) Array.newInstance(TYPES[element], (int) count);
  }

  private static Values ofBuffer(Buffer buffer) {
    int element = elementOfBuffer(buffer);
    if (!buffer.isDirect() || buffer.isReadOnly()) {
      throw new InputException(buffer + ": expected a writable direct buffer");
    }
    if (orderOf(buffer) != ByteOrder.nativeOrder()) {
      throw new InputException(buffer + " is " + orderOf(buffer) + ": expected order(ByteOrder.nativeOrder())");
    }
    long offset = (long) buffer.position() * SIZES_BYTES[element];
    long bytes = (long) buffer.remaining() * SIZES_BYTES[element];
    return new Values(element, Native.address(buffer) + offset, bytes, buffer, null, null);
  }

  private static int elementOfBuffer(Buffer buffer) {
    if (buffer instanceof ByteBuffer) {
      return 0;
    } else if (buffer instanceof ShortBuffer) {
      return 1;
    } else if (buffer instanceof IntBuffer) {
      return 2;
    } else if (buffer instanceof LongBuffer) {
      return 3;
    } else if (buffer instanceof FloatBuffer) {
      return FLOAT;
    } else if (buffer instanceof DoubleBuffer) {
      return DOUBLE;
    }
    throw new InputException(buffer + ": expected a buffer of bytes, short, int, long, float or double");
  }

  private static ByteOrder orderOf(Buffer buffer) {
    if (buffer instanceof ShortBuffer shorts) {
      return shorts.order();
    } else if (buffer instanceof IntBuffer ints) {
      return ints.order();
    } else if (buffer instanceof LongBuffer longs) {
      return longs.order();
    } else if (buffer instanceof FloatBuffer floats) {
      return floats.order();
    } else if (buffer instanceof DoubleBuffer doubles) {
      return doubles.order();
    }
    // A byte buffer needs no byte order.
    return ByteOrder.nativeOrder();
  }

  private static void copyIn(ByteBuffer bytes, Object array) {
    if (array instanceof double[] doubles) {
      bytes.asDoubleBuffer().put(doubles);
    } else if (array instanceof float[] floats) {
      bytes.asFloatBuffer().put(floats);
    } else if (array instanceof long[] longs) {
      bytes.asLongBuffer().put(longs);
    } else if (array instanceof int[] ints) {
      bytes.asIntBuffer().put(ints);
    } else if (array instanceof short[] shorts) {
      bytes.asShortBuffer().put(shorts);
    } else {
      bytes.duplicate().put((byte[]) array);
    }
  }

  private static void copyOut(ByteBuffer bytes, Object array) {
    if (array instanceof double[] doubles) {
      bytes.asDoubleBuffer().get(doubles);
    } else if (array instanceof float[] floats) {
      bytes.asFloatBuffer().get(floats);
    } else if (array instanceof long[] longs) {
      bytes.asLongBuffer().get(longs);
    } else if (array instanceof int[] ints) {
      bytes.asIntBuffer().get(ints);
    } else if (array instanceof short[] shorts) {
      bytes.asShortBuffer().get(shorts);
    } else {
      bytes.duplicate().get((byte[]) array);
    }
  }
}
