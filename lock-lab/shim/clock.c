/* Preloaded into a server, this moves its wall clock by as much as a mapped file says, in nanoseconds; or stops it at the
 * time that the file says.
 *
 * The file is written by the laboratory while the server runs; the monotonic clocks stay as they are. Compiled with
 * `cc -shared -fPIC`. The kernel is asked directly: looking up the library's own functions can wait for a lock that the
 * loader holds while a server starts. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *offset;
/* When the clock stands, since 1970; 0 while it runs. */
static const volatile int64_t *stopped;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("LOCK_LAB_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED) return;
    offset = map;
    stopped = offset + 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    /* Safeguard: only the wall clock of one server is moved */
    if (offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t stands = *stopped;
        int64_t moved = stands ? stands : now->tv_sec * SECOND + now->tv_nsec + *offset;
        now->tv_sec = moved / SECOND;
        now->tv_nsec = moved % SECOND;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
