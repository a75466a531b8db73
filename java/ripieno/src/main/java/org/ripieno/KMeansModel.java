package org.ripieno;

import java.util.Arrays;

/** The result of a {@link KMeans} fit. Labels belong to this rank's rows; all other values are equal on every rank. */
public final class KMeansModel {
  private final double[] centroids;
  private final int columns;
  private final int[] labels;
  private final double inertia;
  private final int iterationCount;

  KMeansModel(double[] centroids, int columns, int[] labels, double inertia, int iterationCount) {
    this.centroids = centroids;
    this.columns = columns;
    this.labels = labels;
    this.inertia = inertia;
    this.iterationCount = iterationCount;
  }

  /** Return the centroids, each with one value per column. */
  public double[][] centroids() {
    double[][] rows = new double[centroids.length / columns][];
    Arrays.setAll(rows, row -> Arrays.copyOfRange(centroids, row * columns, (row + 1) * columns));
    return rows;
  }

  /** Return the index of the nearest centroid for each of this rank's rows. */
  public int[] labels() {
    return labels;
  }

  /** Return the sum of the squared distances of all ranks' rows to their centroids. */
  public double inertia() {
    return inertia;
  }

  /** Return the number of iterations. */
  public int iterationCount() {
    return iterationCount;
  }
}
