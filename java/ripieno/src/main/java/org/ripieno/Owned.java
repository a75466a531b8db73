package org.ripieno;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** Frees native objects when their Java owner becomes unreachable. */
final class Owned {
  private static final Cleaner CLEANER = Cleaner.create();

  private Owned() {}

  /** Free the object at the address once: on request, or when the owner becomes unreachable. */
  static Cleaner.Cleanable by(Object owner, long address, LongConsumer free) {
    return CLEANER.register(owner, () -> free.accept(address));
  }
}
