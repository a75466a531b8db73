package org.ripieno;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** Objects of native code, which are freed when the object of Java that has them cannot be reached any more. */
final class Owned {
  private static final Cleaner CLEANER = Cleaner.create();

  private Owned() {}

  /** Frees what is at the address, once: now, or when the owner is gone. */
  static Cleaner.Cleanable by(Object owner, long address, LongConsumer free) {
    return CLEANER.register(owner, () -> free.accept(address));
  }
}
