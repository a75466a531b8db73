package org.ripieno;

/** Where a {@link KMeans} fit ended; labels are those of this rank's rows, all else is the same on every rank. */
public final class KMeansModel {
  private final Object centroids;
  private final int columns;
  private final int[] labels;
  private final double inertia;
  private final int iterationCount;

  KMeansModel(Object centroids, int columns, int[] labels, double inertia, int iterationCount) {
    this.centroids = centroids;
    this.columns = columns;
    this.labels = labels;
    this.inertia = inertia;
    this.iterationCount = iterationCount;
  }

  /** The centroids, as many values each as there are columns. */
  public double[][] centroids() {
    int count = (int) (Values.countOf(centroids) / columns);
    double[][] rows = new double[count][columns];
    for (int at = 0; at < count * columns; at++) {
      rows[at / columns][at % columns] =
          centroids instanceof float[] floats ? floats[at] : ((double[]) centroids)[at];
    }
    return rows;
  }

  /** The number of the nearest centroid of each of this rank's rows. */
  public int[] labels() {
    return labels;
  }

  /** The sum of the squared distances of all ranks' rows to their centroids. */
  public double inertia() {
    return inertia;
  }

  /** How many iterations were made. */
  public int iterationCount() {
    return iterationCount;
  }
}
