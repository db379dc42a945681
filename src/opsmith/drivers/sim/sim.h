/* sim.h: what the sim driver exports besides opsmith_get_driver(), for tests (from Python: ctypes).
 *
 * Faults are process-wide, like the devices.  These functions follow the rules of opsmith_driver.h: they may
 * be called from any thread, and after a failure last_error() says why.
 */
#ifndef OPSMITH_SIM_H
#define OPSMITH_SIM_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct opsmith_sim_device_statistics {
  uint64_t allocations; /* that succeeded, since the process began */
  uint64_t releases;    /* likewise; allocations - releases is the number of live blocks */
  uint64_t live_bytes;  /* as asked, each block rounded up to the alignment */
  uint64_t peak_bytes;  /* the most that live_bytes has been */
  uint64_t kept_bytes;  /* of released memory that still holds pages of the host's; an estimate */
  uint64_t streams;     /* alive, the default stream included */
  uint64_t threads;     /* that those streams have started */
  uint64_t pinned;      /* live allocations of pinned memory, which are no device's */
} opsmith_sim_device_statistics;

/* Makes calls fail, or be slow:
 *   "copy", "event_record", ...  the next `count` calls of that entry of the table fail and do nothing:
 *                                "allocate" for want of memory, all others with OPSMITH_FAILED
 *   "copy:N", ...                the same after N calls that succeed
 *   "device_lost:D"              every call on device D fails with OPSMITH_DEVICE_LOST; `count` is 1
 *   "device_lost:D:N"            the same after N calls of any entry
 *   "slow"                       each task that is queued from now on first sleeps `count` microseconds,
 *                                also after the fault is cleared; nothing runs inline
 * A lost device touches no memory any more. Returns 0, or 1 when there is no such fault. */
int opsmith_sim_inject(const char* fault, long count);

/* How many calls met `fault` since it was injected, up to the last that failed; -1 when there is no such
 * fault. */
long opsmith_sim_injected_calls(const char* fault);

void opsmith_sim_clear_faults(void);

/* Returns 0, or 1 when there is no such device. */
int opsmith_sim_statistics(int device, opsmith_sim_device_statistics* statistics);

/* Starts to keep the ranges that all threads open and close, or stops. */
void opsmith_sim_record_ranges(int on);

/* The ranges kept since, in lines: "+" and its text for a range that was opened, "-" for one that was closed.
 * Writes as much as fits into `text`, with a 0 at the end, and returns the bytes of all, without the 0. */
size_t opsmith_sim_recorded_ranges(char* text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_SIM_H */
