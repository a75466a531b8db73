/* For LD_PRELOAD: sched_yield() sleeps a little.
 *
 * Ranks of MPI poll. On hosts of their own that costs nobody anything; on hosts that share this machine's cores they would
 * starve each other. With mpi_yield_when_idle Open MPI yields only after a poll in vain, so idle ranks sleep instead,
 * which flatters it. */
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
