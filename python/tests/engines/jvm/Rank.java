import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import org.ripieno.ALS;
import org.ripieno.ALSModel;
import org.ripieno.Communicator;
import org.ripieno.KMeans;
import org.ripieno.KMeansModel;
import org.ripieno.Op;
import org.ripieno.PageRank;
import org.ripieno.PageRankModel;
import org.ripieno.Points;
import org.ripieno.RankFailedException;

/** A rank of a job among ranks of other languages: Rank FOLDER TOKEN RANK SIZE PROGRAM. */
public final class Rank {
  public static void main(String[] words) throws Exception {
    int rank = Integer.parseInt(words[2]);
    int size = Integer.parseInt(words[3]);
    try (Communicator comm =
        Communicator.rendezvous(rank, size, words[1])
            .heartbeatTimeout(Duration.ofSeconds(5))
            .over(Path.of(words[0]))) {
      switch (words[4]) {
        case "sums" -> sums(comm);
        case "kmeans" -> kmeans(comm);
        case "pagerank" -> pagerank(comm);
        case "als" -> als(comm);
        default -> failing(comm);
      }
    }
  }

  private static void sums(Communicator comm) {
    double[] values = new double[1000];
    Arrays.setAll(values, at -> at + 0.1 * comm.rank());
    comm.allreduce(values, Op.SUM);
    int[] root = comm.broadcast(new int[] {comm.rank() * 7, 3}, comm.size() - 1);
    float[] largest = comm.allreduce(new float[] {comm.rank(), -1}, Op.MAX);
    comm.barrier();
    System.out.println(bits(values[999]) + " " + Arrays.toString(root) + " " + Arrays.toString(largest));
  }

  /** Draws the same numbers as the test, with a linear congruential generator. */
  private static void kmeans(Communicator comm) {
    int rows = 3000;
    int columns = 5;
    int k = 20;
    float[][] all = new float[rows][columns];
    long state = 7;
    for (float[] row : all) {
      for (int column = 0; column < columns; column++) {
        state = (state * 1103515245 + 12345) & 0x7fffffff;
        row[column] = state / 1048576.0f;
      }
    }
    double[][] start = new double[k][columns];
    for (int cluster = 0; cluster < k; cluster++) {
      for (int column = 0; column < columns; column++) {
        start[cluster][column] = all[cluster][column];
      }
    }
    try (Points points = Points.ofFloats(columns)) {
      for (int row = rows * comm.rank() / comm.size(); row < rows * (comm.rank() + 1) / comm.size(); row++) {
        points.add(all[row]);
      }
      KMeansModel model =
          new KMeans().setK(k).setInitialCentroids(start).setMaxIter(40).setTol(1e-4).fit(comm, points);
      StringBuilder described = new StringBuilder(bits(model.inertia())).append(' ');
      for (double[] centroid : model.centroids()) {
        for (double value : centroid) {
          described.append(bits(value)).append(' ');
        }
      }
      System.out.println(model.iterationCount() + " " + Arrays.hashCode(model.labels()) + " " + described);
    }
  }

  /** Draws the edges of the test, with parallel edges, loops and vertices without out-edges. */
  /** Prints the objective, and the sums of the squared factors of users and items. */
  private static void als(Communicator comm) {
    int userCount = 60;
    int itemCount = 40;
    int count = 0;
    long[] users = new long[userCount * itemCount];
    long[] items = new long[users.length];
    float[] ratings = new float[users.length];
    long state = 7;
    for (int user = 0; user < userCount; user++) {
      for (int item = 0; item < itemCount; item++) {
        state = (state * 1103515245 + 12345) & 0x7fffffff;
        if ((state >> 8) % 5 < 3 && count % comm.size() == comm.rank()) {
          users[count / comm.size()] = user * 1_000_000_007L;
          items[count / comm.size()] = item - 20;
          ratings[count / comm.size()] = 1 + user % 5 + user % 3 * (item % 4) + ((state >> 16) % 8) / 8f;
        }
        count += (state >> 8) % 5 < 3 ? 1 : 0;
      }
    }
    int own = (count + comm.size() - 1 - comm.rank()) / comm.size();
    ALSModel model =
        new ALS()
            .setRank(2)
            .setMaxIter(150)
            .setReg(0.1)
            .fit(comm, Arrays.copyOf(users, own), Arrays.copyOf(items, own), Arrays.copyOf(ratings, own));
    double[] squares = new double[2];
    for (float factor : model.userFactors()) {
      squares[0] += factor * factor;
    }
    for (float factor : model.itemFactors()) {
      squares[1] += factor * factor;
    }
    comm.allreduce(squares, Op.SUM);
    System.out.println(model.objectives()[149] + " " + squares[0] + " " + squares[1]);
  }

  private static void pagerank(Communicator comm) {
    int count = 3000;
    long[] sources = new long[count];
    long[] targets = new long[count];
    double[] weights = new double[count];
    long state = 7;
    for (int edge = 0; edge < count; edge++) {
      state = (state * 1103515245 + 12345) & 0x7fffffff;
      sources[edge] = (state >> 8) % 90;
      state = (state * 1103515245 + 12345) & 0x7fffffff;
      targets[edge] = (state >> 8) % 120 + (edge % 2) * 10_000_000_000L;
      weights[edge] = (state >> 20) % 5;
    }
    int begin = count * comm.rank() / comm.size();
    int end = count * (comm.rank() + 1) / comm.size();
    for (double[] each : new double[][] {null, weights}) {
      PageRankModel model =
          new PageRank()
              .fit(
                  comm,
                  Arrays.copyOfRange(sources, begin, end),
                  Arrays.copyOfRange(targets, begin, end),
                  each == null ? null : Arrays.copyOfRange(each, begin, end));
      StringBuilder described = new StringBuilder().append(model.iterationCount());
      for (int vertex = 0; vertex < model.vertices().length; vertex++) {
        described.append(' ').append(model.vertices()[vertex]).append('=').append(model.ranks()[vertex]);
      }
      System.out.println(described);
    }
  }

  private static void failing(Communicator comm) throws InterruptedException {
    comm.barrier();
    System.out.println("here");
    if (comm.rank() == comm.size() - 1) {
      Thread.sleep(60_000);
    }
    try {
      comm.allreduce(new double[3], Op.SUM);
    } catch (RankFailedException failed) {
      System.out.println("rank " + failed.rank() + " on host " + failed.host() + " failed: " + failed.reason());
    }
  }

  private static String bits(double value) {
    return HexFormat.of().toHexDigits(Double.doubleToLongBits(value));
  }
}
