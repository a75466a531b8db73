/* Times an MPI collective: the peer of crates/ripieno/examples/collectives.rs, with the same arguments, the same rule and
 * the same output.
 *
 *     mpirun -np P collectives allreduce|broadcast BYTES:CALLS:BATCHES ...
 *
 * A batch is a barrier and then CALLS calls in place, on float32, sum, root 0; its time is the slowest rank's, per call.
 * Rank 0 prints a line "BYTES SECONDS" per batch. Results are checked: of an allreduce before the first batch, of a
 * broadcast after each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, world_size;

/* Element i of a rank's contribution: small integers, so that sums are exact in any order. */
static float element(int of_rank, long i) { return (float)(of_rank + i % 7); }

static void require(int holds, const char *what, long bytes) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s of %ld bytes\n", rank, what, bytes);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(float *vector, long count) {
  for (long i = 0; i < count; i++) vector[i] = element(rank, i);
}

static int is_sum(const float *vector, long count) {
  long wrong = 0;
  for (long i = 0; i < count; i++)
    wrong += vector[i] != (float)(world_size * (world_size - 1) / 2 + world_size * (i % 7));
  return wrong == 0;
}

static int is_of_root(const float *vector, long count) {
  long wrong = 0;
  for (long i = 0; i < count; i++) wrong += vector[i] != element(0, i);
  return wrong == 0;
}

static double slowest(double mine) {
  double worst;
  MPI_Allreduce(&mine, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return worst;
}

static void allreduce(float *vector, long count) {
  MPI_Allreduce(MPI_IN_PLACE, vector, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(float *vector, long count) { MPI_Bcast(vector, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD); }

static double batch(void (*call)(float *, long), float *vector, long count, int call_count) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < call_count; i++) call(vector, count);
  return slowest((MPI_Wtime() - start) / call_count);
}

static void report(long bytes, double seconds) {
  if (rank == 0) printf("%ld %.9f\n", bytes, seconds);
}

static void time_allreduce(float *vector, long count, int call_count, int batch_count) {
  fill(vector, count);
  allreduce(vector, count);
  require(is_sum(vector, count), "wrong sum", 4 * count);
  memset(vector, 0, 4 * count); /* sums of zeros stay finite, however many */
  batch(allreduce, vector, count, (call_count + 9) / 10);
  for (int b = 0; b < batch_count; b++) report(4 * count, batch(allreduce, vector, count, call_count));
}

static void time_broadcast(float *vector, long count, int call_count, int batch_count) {
  for (int b = 0; b < batch_count; b++) {
    if (rank == 0) fill(vector, count);
    else memset(vector, 0xff, 4 * count);
    report(4 * count, batch(broadcast, vector, count, call_count));
    require(is_of_root(vector, count), "wrong broadcast", 4 * count);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  require(argc > 1, "no operation, wanted allreduce or broadcast, then a case", 0);
  for (int i = 2; i < argc; i++) {
    long bytes;
    int call_count, batch_count;
    require(sscanf(argv[i], "%ld:%d:%d", &bytes, &call_count, &batch_count) == 3, "BYTES:CALLS:BATCHES expected", 0);
    float *vector = malloc(bytes);
    require(vector != NULL, "no memory", bytes);
    if (strcmp(argv[1], "broadcast") == 0) time_broadcast(vector, bytes / 4, call_count, batch_count);
    else time_allreduce(vector, bytes / 4, call_count, batch_count);
    free(vector);
  }
  MPI_Finalize();
  return 0;
}
