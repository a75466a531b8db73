import java.io.PrintStream;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.java.DataSet;
import org.apache.flink.api.java.ExecutionEnvironment;
import org.apache.flink.api.java.operators.IterativeDataSet;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.examples.java.clustering.KMeans.Centroid;
import org.apache.flink.examples.java.clustering.KMeans.CentroidAccumulator;
import org.apache.flink.examples.java.clustering.KMeans.CentroidAverager;
import org.apache.flink.examples.java.clustering.KMeans.CountAppender;
import org.apache.flink.examples.java.clustering.KMeans.Point;
import org.apache.flink.examples.java.clustering.KMeans.SelectNearestCenter;

/**
 * FlinkTurns SLOTS POINTS CENTROIDS ITERATIONS TURNS OUT: whole K-means jobs with the operators of Flink's own example,
 * from CSV files to the centroids, which the last job writes to OUT. For each job it prints the seconds of the whole
 * job, and the mean seconds that a slot spends in the search of nearest centroids.
 */
public final class FlinkTurns {
  private static final String COMPUTED = "computed";

  public static void main(String[] words) throws Exception {
    int slots = Integer.parseInt(words[0]);
    for (int turn = -1; turn < Integer.parseInt(words[4]); turn++) {
      long begin = System.nanoTime();
      ExecutionEnvironment environment = ExecutionEnvironment.createLocalEnvironment(slots);
      List<Centroid> centroids = clusters(environment, words[1], words[2], Integer.parseInt(words[3])).collect();
      double total = (System.nanoTime() - begin) / 1e9;
      long computed = environment.getLastJobExecutionResult().getAccumulatorResult(COMPUTED);
      if (turn >= 0) {
        System.out.println("turn " + total + " " + computed / 1e9 / slots);
      }
      write(centroids, words[5]);
    }
  }

  private static DataSet<Centroid> clusters(
      ExecutionEnvironment environment, String points, String centroids, int iterations) {
    DataSet<Point> rows = environment.readCsvFile(points).fieldDelimiter(",").pojoType(Point.class, "x", "y");
    IterativeDataSet<Centroid> loop =
        environment
            .readCsvFile(centroids)
            .fieldDelimiter(",")
            .pojoType(Centroid.class, "id", "x", "y")
            .iterate(iterations);
    return loop.closeWith(
        rows.map(new TimedSearch())
            .withBroadcastSet(loop, "centroids")
            .map(new CountAppender())
            .groupBy(0)
            .reduce(new CentroidAccumulator())
            .map(new CentroidAverager()));
  }

  private static void write(Collection<Centroid> centroids, String path) throws Exception {
    try (PrintStream out = new PrintStream(path)) {
      centroids.forEach(each -> out.println(each.x + "," + each.y));
    }
  }

  /** The example's search of the nearest centroid, which adds its time to an accumulator. */
  private static final class TimedSearch extends RichMapFunction<Point, Tuple2<Integer, Point>> {
    private final SelectNearestCenter search = new SelectNearestCenter();
    private long computed;

    @Override
    public void setRuntimeContext(RuntimeContext context) {
      super.setRuntimeContext(context);
      search.setRuntimeContext(context);
    }

    @Override
    public void open(Configuration parameters) throws Exception {
      search.open(parameters);
      computed = 0;
    }

    @Override
    public Tuple2<Integer, Point> map(Point point) throws Exception {
      long begin = System.nanoTime();
      Tuple2<Integer, Point> found = search.map(point);
      computed += System.nanoTime() - begin;
      return found;
    }

    @Override
    public void close() {
      LongCounter counter = getRuntimeContext().getLongCounter(COMPUTED);
      counter.add(computed);
    }
  }
}
