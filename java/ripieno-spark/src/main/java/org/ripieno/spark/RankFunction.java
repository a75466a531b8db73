package org.ripieno.spark;

import java.io.Serializable;
import java.util.Iterator;
import org.ripieno.Communicator;

/**
 * What every rank runs on its rows.
 *
 * @param <T> of rows
 * @param <R> of results
 */
@FunctionalInterface
public interface RankFunction<T, R> extends Serializable {
  /** Runs on a rank. What it throws is told to all others, and ends the job. */
  R call(Communicator communicator, Iterator<T> rows) throws Exception;
}
