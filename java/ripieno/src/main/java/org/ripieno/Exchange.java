package org.ripieno;

/**
 * The function that an engine supplies to connect ranks: every rank passes a string and gets the strings of all ranks.
 */
@FunctionalInterface
public interface Exchange {
  /**
   * Pass this rank's string and return all strings, ordered by rank. Must not wait forever.
   *
   * <p>For example, {@code BarrierTaskContext.get()::allGather} of Spark implements it.
   */
  String[] exchange(String mine) throws Exception;
}
