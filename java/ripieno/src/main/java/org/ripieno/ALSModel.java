package org.ripieno;

import java.io.Serializable;

/**
 * A rank's part of the result of {@link ALS}. Each user and each item is in the part of exactly one rank.
 *
 * @param users the ids of the users of this part, ascending
 * @param userFactors a row of {@code rank} factors for each of these users, one after the other
 * @param items the ids of the items of this part, ascending
 * @param itemFactors a row of {@code rank} factors for each of these items
 * @param rank number of factors of each user and item
 * @param objectives the objective of all ranks after each iteration
 */
public record ALSModel(
    long[] users, float[] userFactors, long[] items, float[] itemFactors, int rank, double[] objectives)
    implements Serializable {}
