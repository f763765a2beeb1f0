/* trainhost plugin ABI: status codes and errors. Plain C11.
 * Rules of every header here:
 * R1 every struct starts with struct_size; append-only inside a major; the owner zero-fills it, then sets struct_size;
 *    nobody touches a byte past the other side's struct_size. A zero field means "unset".
 * R2 fixed-width integers and double only: no enum, bool, bitfield, size_t, long or union in a struct.
 * R3 strings are UTF-8, NUL-terminated, borrowed for the call unless marked STATIC (life of the library).
 * R4 lists never cross as arrays of growing structs: the producer calls a sink once per item, the consumer copies.
 * R5 no exception, panic, longjmp, exit or signal may leave either side; process state (signals, locale, FP mode,
 *    working directory, environment, standard streams) is left as found, also by library constructors.
 * R6 [any] = any thread, concurrent; [inst] = the host serialises per instance, the thread may change between calls;
 *    [ctl] = one thread, no instance alive. Host callbacks are all [any], legal only inside a plugin call or on a
 *    thread that the plugin joins before destroy() returns. */
#ifndef TRAINHOST_STATUS_H
#define TRAINHOST_STATUS_H
#include <stddef.h>
#include <stdint.h>

/* Frozen: what a plugin of minor n was built with is there in every later minor (sdk/abi/README.md). */
#define TH_ABI_MAJOR 1u
#define TH_ABI_MINOR 0u

/* Is field f inside what the other side wrote? */
#define TH_HAS(p, T, f) ((p)->struct_size >= (uint32_t)(offsetof(T, f) + sizeof((p)->f)))

/* 0 ok, < 0 failed. A code says what the CALLER can do about it. */
typedef int32_t th_status;
#define TH_OK 0
#define TH_E_ARG (-1)         /* caller bug: fix the call */
#define TH_E_UNSUPPORTED (-2) /* valid, but not by this plugin: the host may try the next candidate */
#define TH_E_UNAVAILABLE (-3) /* no device, driver, library or licence here: the host may fall back */
#define TH_E_DEVICE_OOM (-4)  /* shrink the run; error.bytes_needed says by how much */
#define TH_E_HOST_OOM (-5)
#define TH_E_CANCELLED (-6)
#define TH_E_STATE (-7)       /* wrong order of calls */
#define TH_E_NONFINITE (-8)   /* loss or gradient overflow; the step was not applied */
#define TH_E_DEVICE_LOST (-9) /* the instance is dead: destroy it */
#define TH_E_IO (-10)
#define TH_E_INTERNAL (-11)   /* plugin bug (the C++ glue: an escaped exception) */

/* Caller-owned; the callee fills it when it returns a code < 0. */
typedef struct th_error {
  uint32_t struct_size;
  th_status code;
  int32_t native_code; /* of the vendor library, in native_domain ("cuda", "cublas", "errno") */
  uint32_t reserved;
  uint64_t bytes_needed; /* with *_OOM: how much was missing */
  char native_domain[16];
  char message[320]; /* what happened, to what */
  char hint[160];    /* what the user can do */
} th_error;
#endif
