package org.ripieno.spark;

import java.io.Serializable;
import java.util.Iterator;
import org.ripieno.Communicator;

/**
 * The function that every rank runs on its rows.
 *
 * @param <T> type of the rows
 * @param <R> type of the result
 */
@FunctionalInterface
public interface RankFunction<T, R> extends Serializable {
  /** Run on a rank. An exception is reported to all other ranks and ends the job. */
  R call(Communicator communicator, Iterator<T> rows) throws Exception;
}
