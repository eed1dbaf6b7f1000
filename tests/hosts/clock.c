/* The date of one process, CLOCK_SHIFT seconds off: preloaded. Timers are left alone, as by a clock that is set wrong. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
    const char *given = getenv("CLOCK_SHIFT");
    return given ? atol(given) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed)
        now->tv_sec += shift();
    return failed;
}

time_t time(time_t *kept)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept)
        *kept = now.tv_sec;
    return now.tv_sec;
}
