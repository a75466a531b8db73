import java.util.Arrays;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.api.java.function.Function2;

/** Functions for Spark that add up long vectors by treeAggregate without Python. */
public final class VectorSum {
  private VectorSum() {}

  /** Returns the vector of a partition, as {@code part} of spark_programs.py. */
  public static final class Part implements Function<Integer, double[]> {
    private final int length;

    public Part(int length) {
      this.length = length;
    }

    @Override
    public double[] call(Integer number) {
      double[] vector = new double[length];
      Arrays.fill(vector, number + 1.0);
      return vector;
    }
  }

  /** Adds into the first argument; null is an empty sum. */
  public static final class Add implements Function2<double[], double[], double[]> {
    @Override
    public double[] call(double[] total, double[] vector) {
      if (total == null || vector == null) {
        return total == null ? vector : total;
      }
      for (int i = 0; i < total.length; i++) {
        total[i] += vector[i];
      }
      return total;
    }
  }
}
