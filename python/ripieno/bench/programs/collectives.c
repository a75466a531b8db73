/* Times collectives of MPI by the rules of timing.py:
 *
 *     mpirun -np P collectives BUDGET_S COLLECTIVE:BYTES ...
 *
 * Vectors of float32, sum, root 0, in place where MPI can. Prints "CASE SECONDS" per timed call or batch: the slowest
 * rank's, after a barrier. Results are checked before the timing starts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEPARATE_BYTES_MIN = 64 << 10, BATCH_COUNT = 5, BATCH_CALL_COUNT_MAX = 5000, SEPARATE_CALL_COUNT_MAX = 50 };

typedef struct {
  float *main, *into;
  long count, block; /* elements of main, and of a rank's block */
} Vectors;

static int rank, world_size;

static void require(int holds, const char *what, const char *of) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, of);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static float *mine(const Vectors *v) { return v->main + rank * v->block; }

static void call_broadcast(Vectors *v) { MPI_Bcast(v->main, v->count, MPI_FLOAT, 0, MPI_COMM_WORLD); }

static void call_reduce(Vectors *v) {
  if (rank == 0) MPI_Reduce(MPI_IN_PLACE, v->main, v->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  else MPI_Reduce(v->main, NULL, v->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void call_allreduce(Vectors *v) {
  MPI_Allreduce(MPI_IN_PLACE, v->main, v->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_allgather(Vectors *v) {
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, v->main, v->block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_reduce_scatter(Vectors *v) {
  MPI_Reduce_scatter_block(v->main, v->into, v->block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_gather(Vectors *v) {
  if (rank == 0) MPI_Gather(MPI_IN_PLACE, 0, MPI_FLOAT, v->main, v->block, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else MPI_Gather(mine(v), v->block, MPI_FLOAT, NULL, 0, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_scatter(Vectors *v) {
  if (rank == 0) MPI_Scatter(v->main, v->block, MPI_FLOAT, MPI_IN_PLACE, 0, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else MPI_Scatter(NULL, 0, MPI_FLOAT, mine(v), v->block, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_alltoall(Vectors *v) {
  MPI_Alltoall(v->main, v->block, MPI_FLOAT, v->into, v->block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_barrier(Vectors *v) {
  (void)v;
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Element i of a rank's contribution: small integers, so that sums are exact in any order. */
static float element(int of_rank, long i) { return (float)(of_rank + i % 7); }

static float total(long i) { return (float)(world_size * (world_size - 1) / 2 + world_size * (i % 7)); }

static int is_of(int of_rank, const float *vector, long first, long count) {
  for (long i = 0; i < count; i++)
    if (vector[i] != element(of_rank, first + i)) return 0;
  return 1;
}

static int is_total(const float *vector, long first, long count) {
  for (long i = 0; i < count; i++)
    if (vector[i] != total(first + i)) return 0;
  return 1;
}

static int is_blocks(const float *vector, long first, long block) {
  for (int r = 0; r < world_size; r++)
    if (!is_of(r, vector + r * block, first, block)) return 0;
  return 1;
}

static int right_broadcast(const Vectors *v) { return is_of(0, v->main, 0, v->count); }
static int right_reduce(const Vectors *v) { return rank != 0 || is_total(v->main, 0, v->count); }
static int right_allreduce(const Vectors *v) { return is_total(v->main, 0, v->count); }
static int right_allgather(const Vectors *v) { return is_blocks(v->main, 0, v->block); }
static int right_reduce_scatter(const Vectors *v) { return is_total(v->into, rank * v->block, v->block); }
static int right_gather(const Vectors *v) { return rank != 0 || is_blocks(v->main, 0, v->block); }
static int right_scatter(const Vectors *v) { return is_of(0, mine(v), rank * v->block, v->block); }
static int right_alltoall(const Vectors *v) { return is_blocks(v->into, rank * v->block, v->block); }
static int right_barrier(const Vectors *v) { return v != NULL; }

/* Initial data of a rank: all of `main`, its own block, or all at the root only. */
typedef enum { ALL, OWN, AT_ROOT } Given;
/* Memory layout for `bytes`: a vector; a block per rank; a vector cut into blocks. */
typedef enum { VECTOR, BLOCKS, CUT } Shape;

static const struct {
  const char *name;
  void (*call)(Vectors *);
  int (*right)(const Vectors *);
  Given given;
  Shape shape;
} COLLECTIVES[] = {
    {"broadcast", call_broadcast, right_broadcast, AT_ROOT, VECTOR},
    {"reduce", call_reduce, right_reduce, ALL, VECTOR},
    {"allreduce", call_allreduce, right_allreduce, ALL, VECTOR},
    {"allgather", call_allgather, right_allgather, OWN, BLOCKS},
    {"reduce-scatter", call_reduce_scatter, right_reduce_scatter, ALL, CUT},
    {"gather", call_gather, right_gather, OWN, BLOCKS},
    {"scatter", call_scatter, right_scatter, AT_ROOT, BLOCKS},
    {"alltoall", call_alltoall, right_alltoall, ALL, CUT},
    {"barrier", call_barrier, right_barrier, ALL, VECTOR},
};
enum { COLLECTIVE_COUNT = sizeof COLLECTIVES / sizeof *COLLECTIVES };

static int find(const char *word, const char *size) {
  for (int c = 0; size != NULL && c < COLLECTIVE_COUNT; c++)
    if (strlen(COLLECTIVES[c].name) == (size_t)(size - word) && !strncmp(word, COLLECTIVES[c].name, size - word)) return c;
  require(0, "expected COLLECTIVE:BYTES", word);
  return -1;
}

static Vectors allocate(Shape shape, long bytes, const char *word) {
  long count = bytes / 4, block = count;
  if (shape == BLOCKS) count = block * world_size;
  if (shape == CUT) {
    block = count / world_size > 0 ? count / world_size : 1;
    count = block * world_size;
  }
  Vectors v = {malloc(4 * count), malloc(4 * count), count, block};
  require(count > 0 && v.main != NULL && v.into != NULL, "no memory, or no bytes", word);
  return v;
}

static void fill(Vectors *v, Given given) {
  for (long i = 0; i < v->count; i++) v->main[i] = given == ALL || (given == AT_ROOT && rank == 0) ? element(rank, i) : -1;
  if (given == OWN)
    for (long i = 0; i < v->block; i++) mine(v)[i] = element(rank, i);
  for (long i = 0; i < v->count; i++) v->into[i] = -1;
}

static double slowest(double own) {
  double worst;
  MPI_Allreduce(&own, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return worst;
}

static double batch(void (*call)(Vectors *), Vectors *v, int call_count) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < call_count; i++) call(v);
  return slowest((MPI_Wtime() - start) / call_count);
}

static int fitting(double seconds, double each, int most) {
  double count = seconds / (each > 1e-9 ? each : 1e-9);
  return count < 1 ? 1 : count > most ? most : (int)count;
}

static void report(const char *word, double seconds) {
  if (rank == 0) printf("%s %.9f\n", word, seconds);
  if (rank == 0) fflush(stdout);
}

static void measure(void (*call)(Vectors *), Vectors *v, const char *word, double budget, int separate) {
  double once = batch(call, v, 1);
  if (once >= budget) {
    report(word, once);
    return;
  }
  if (separate) {
    for (int left = fitting(budget, once, SEPARATE_CALL_COUNT_MAX); left > 0; left--) report(word, batch(call, v, 1));
    return;
  }
  double many = batch(call, v, fitting(budget / BATCH_COUNT, once, BATCH_CALL_COUNT_MAX));
  int call_count = fitting(budget / BATCH_COUNT, many, BATCH_CALL_COUNT_MAX);
  for (int b = 0; b < BATCH_COUNT; b++) report(word, batch(call, v, call_count));
}

static void run(const char *word, double budget) {
  const char *size = strrchr(word, ':');
  int c = find(word, size);
  long bytes = atol(size + 1);
  Vectors v = allocate(COLLECTIVES[c].shape, bytes, word);
  fill(&v, COLLECTIVES[c].given);
  COLLECTIVES[c].call(&v);
  require(COLLECTIVES[c].right(&v), "wrong result", word);
  memset(v.main, 0, 4 * v.count); /* sums of zeros stay finite in any number of calls */
  measure(COLLECTIVES[c].call, &v, word, budget, bytes >= SEPARATE_BYTES_MIN);
  free(v.main);
  free(v.into);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  require(argc > 1, "no seconds, then cases", "BUDGET_S COLLECTIVE:BYTES ...");
  for (int i = 2; i < argc; i++) run(argv[i], atof(argv[1]));
  MPI_Finalize();
  return 0;
}
