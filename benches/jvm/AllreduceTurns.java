import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import org.ripieno.Communicator;
import org.ripieno.Op;

/**
 * A rank that sums doubles, alternately in an array and in a direct buffer: AllreduceTurns FOLDER TOKEN RANK SIZE LENGTH
 * TURNS. Rank 0 prints the seconds of each turn.
 */
public final class AllreduceTurns {
  public static void main(String[] words) {
    int rank = Integer.parseInt(words[2]);
    int size = Integer.parseInt(words[3]);
    int length = Integer.parseInt(words[4]);
    double[] array = new double[length];
    DoubleBuffer buffer = ByteBuffer.allocateDirect(8 * length).order(ByteOrder.nativeOrder()).asDoubleBuffer();
    try (Communicator comm = Communicator.rendezvous(rank, size, words[1]).over(Path.of(words[0]))) {
      for (int turn = -2; turn < Integer.parseInt(words[5]); turn++) {
        Arrays.fill(array, 1.0);
        buffer.duplicate().put(array);
        double inArray = seconds(comm, () -> comm.allreduce(array, Op.SUM));
        double inBuffer = seconds(comm, () -> comm.allreduce(buffer, Op.SUM));
        if (array[length - 1] != size || buffer.get(length - 1) != size) {
          throw new AssertionError("the sum is " + array[length - 1] + " and " + buffer.get(length - 1));
        }
        if (rank == 0 && turn >= 0) {
          System.out.println(inArray + " " + inBuffer);
        }
      }
    }
  }

  private static double seconds(Communicator comm, Runnable call) {
    comm.barrier();
    long begin = System.nanoTime();
    call.run();
    return (System.nanoTime() - begin) / 1e9;
  }
}
