/* Print the seconds of PHASES phases on OpenMP threads: openmp_turns fork-join|bsp THREADS PHASES ROUNDS
 *
 * The same work as in a turn of our own threads: in each phase all threads together do ROUNDS dependent
 * multiplications. In `fork-join` each phase is a parallel region; in `bsp` all phases are one region with barriers.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void work(long rounds) {
    volatile uint64_t kept = 1;
    uint64_t state = kept;
    for (long i = 0; i < rounds; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    }
    kept = state;
}

static void fork_join(int threads, long phases, long share) {
    for (long phase = 0; phase < phases; phase++) {
#pragma omp parallel num_threads(threads)
        work(share);
    }
}

static void bsp(int threads, long phases, long share) {
#pragma omp parallel num_threads(threads)
    for (long phase = 0; phase < phases; phase++) {
        work(share);
#pragma omp barrier
    }
}

int main(int count, char **words) {
    if (count != 5) {
        return 2;
    }
    int threads = atoi(words[2]);
    long phases = atol(words[3]), share = atol(words[4]) / threads;
    void (*model)(int, long, long) = strcmp(words[1], "bsp") == 0 ? bsp : fork_join;
    omp_set_dynamic(0);
    /* Create the threads. */
    fork_join(threads, 1, 0);
    double begin = omp_get_wtime();
    model(threads, phases, share);
    printf("%.9f\n", omp_get_wtime() - begin);
    return 0;
}
