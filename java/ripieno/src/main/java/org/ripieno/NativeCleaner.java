package org.ripieno;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** Frees native objects when their Java owner becomes unreachable. */
final class NativeCleaner {
  private static final Cleaner CLEANER = Cleaner.create();

  private NativeCleaner() {}

  /** Free the object at this address once: on request, or when its owner becomes unreachable. */
  static Cleaner.Cleanable register(Object owner, long address, LongConsumer free) {
    return CLEANER.register(owner, () -> free.accept(address));
  }
}
