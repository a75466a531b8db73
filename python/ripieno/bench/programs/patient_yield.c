/* For LD_PRELOAD: sched_yield() sleeps briefly.
 *
 * Ranks of MPI poll. On separate hosts polling costs nothing; on emulated hosts, which share this machine's cores, ranks
 * would starve each other. With mpi_yield_when_idle Open MPI yields only after an unsuccessful poll, so idle ranks sleep
 * instead, which is in its favour. */
#include <sys/prctl.h>
#include <time.h>

static const struct timespec NAP = {0, 200 * 1000};
static const unsigned long TIMER_SLACK_NS = 1000;

int sched_yield(void) {
  static __thread int is_punctual;
  if (!is_punctual) is_punctual = prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS) == 0;
  nanosleep(&NAP, NULL);
  return 0;
}
