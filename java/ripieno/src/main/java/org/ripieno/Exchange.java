package org.ripieno;

/** What an engine supplies, so that ranks meet: every rank gives a string and gets those of all. */
@FunctionalInterface
public interface Exchange {
  /**
   * Gives this rank's string and returns all, in the order of the ranks. It must not wait for ever.
   *
   * <p>{@code BarrierTaskContext.get()::allGather} of Spark is one.
   */
  String[] exchange(String mine) throws Exception;
}
