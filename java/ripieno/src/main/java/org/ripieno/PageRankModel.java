package org.ripieno;

import java.io.Serializable;

/**
 * A rank's part of the result of {@link PageRank}.
 *
 * @param vertices the ids of the vertices of this part, ascending; each vertex is in the part of exactly one rank
 * @param ranks the PageRank of each of these vertices; all parts add up to 1
 * @param iterationCount number of iterations
 * @param hasConverged whether the tolerance was reached
 */
public record PageRankModel(long[] vertices, double[] ranks, int iterationCount, boolean hasConverged)
    implements Serializable {}
