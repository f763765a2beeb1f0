/* trainhost plugin ABI: the rules of the boundary, status codes, errors. Plain C11; frozen as major 1.
 * Rules of every header here:
 * R1 every struct starts with struct_size; append-only inside a major; the owner zero-fills it, then sets
 * struct_size; nobody writes a byte past the other side's struct_size. A zero field is "unset"; `reserved`
 * stays zero for ever. The host does the negotiating: what it hands in lies before 4 KiB of zeros and is
 * never shorter than the struct of the minor that a plugin was built with, so a plugin reads and writes its
 * own headers' fields without asking. R2 fixed-width integers and double only: no enum, bool, bitfield,
 * size_t, long or union in a struct. R3 strings are UTF-8, NUL-terminated, borrowed for the call unless
 * marked STATIC (life of the library). R4 lists never cross as arrays of growing structs: the producer calls
 * a sink once per item, the consumer copies. R5 no exception, panic, longjmp, exit or signal may leave either
 * side; process state (signals, locale, FP mode, working directory, environment, standard streams) is left as
 * found, also by library constructors. R6 no memory changes owner: texts and structs are the caller's, the
 * callee fills them; what is taken is given back to where it came from. Nulls: a pointer that a function
 * needs and does not get is TH_E_ARG, never a crash. A null th_error is allowed everywhere: it means that the
 * caller wants the code alone. Threads, a tag on every function: [any]  any thread, also concurrently with
 * itself and everything else [inst] one call at a time per instance; the thread may change between calls
 *    [ctl]  one call at a time per library, while no instance of it is alive
 *    Host callbacks are all [any], legal only inside a plugin call or on a thread that the plugin joins
 * before the call that made it returns, for threads of an instance: before destroy() returns. Life cycle, a
 * tag on every function: the states in which a host calls it. A plugin answers a call in another state with
 * TH_E_STATE and changes nothing. library:  {mapped} entry known -> start() -> {started} -> stop() ->
 * {mapped} instance: create() -> {created} -> init() -> {ready} -> step() that updates -> {stepped} a call
 * that returned DEVICE_LOST, DEVICE_OOM, HOST_OOM, IO or INTERNAL -> {lost}: destroy() alone any other code
 * leaves state, parameters and moments as they were {alive} is any of created, ready, stepped, lost. {ready+}
 * is ready or stepped; {created+} is created, ready or stepped. */
#ifndef TRAINHOST_STATUS_H
#define TRAINHOST_STATUS_H
#include <stddef.h>
#include <stdint.h>

/* Frozen: what a plugin of minor n was built with is there in every later minor (sdk/abi/README.md). */
#define TH_ABI_MAJOR 1u
#define TH_ABI_MINOR 0u

/* Is field f inside what the other side wrote? Plugins need it for structs that they did not get from a host.
 */
#define TH_HAS(p, T, f) ((p)->struct_size >= (uint32_t)(offsetof(T, f) + sizeof((p)->f)))

/* 0 ok, < 0 failed. A code says what the CALLER can do about it; values that are not listed are a bug of the
 * plugin. */
typedef int32_t th_status;
#define TH_OK 0
#define TH_E_ARG (-1) /* an argument breaks this interface's rules: fix the call, repeating it is useless */
#define TH_E_UNSUPPORTED (-2) /* valid, but not by this plugin: try the next candidate, or change the run */
#define TH_E_UNAVAILABLE \
  (-3) /* no device, driver, library or licence here: fall back, or ask on another machine */
#define TH_E_DEVICE_OOM (-4) /* the device's memory is short: shrink the run by error.bytes_needed */
#define TH_E_HOST_OOM                                                                                        \
  (-5)                      /* host memory or the host's budget is short: shrink the run or raise the budget \
                             */
#define TH_E_CANCELLED (-6) /* host->cancelled() said so: nothing was applied, stop or call again */
#define TH_E_STATE (-7)     /* wrong order of calls: bring the instance into the right state first */
#define TH_E_NONFINITE \
  (-8) /* loss or gradient overflow: the step was not applied; go on, lower lr, or stop */
#define TH_E_DEVICE_LOST \
  (-9)                /* the device is gone: destroy() the instance, create() another and load a checkpoint */
#define TH_E_IO (-10) /* a file or a connection failed (error.native_code): repair it and start again */
#define TH_E_INTERNAL \
  (-11)                   /* bug of the plugin: destroy() the instance and report it to the plugin's author */
#define TH_E_ABSENT (-12) /* what was asked for by name does not exist: take your default */

/* Caller-owned and zero-filled; the callee fills it when it returns a code < 0, and keeps no pointer to it.
 */
typedef struct th_error {
  uint32_t struct_size;
  th_status code;      /* as returned; the returned one counts */
  int32_t native_code; /* of the vendor library that native_domain names; 0 = none */
  uint32_t reserved;
  uint64_t bytes_needed;  /* with TH_E_*_OOM: bytes that were missing; 0 = not known */
  char native_domain[16]; /* "cuda", "cublas", "errno"; NUL-terminated, as the two below */
  char message[320];      /* one sentence: what happened, to what */
  char hint[160];         /* what the user can do; "" = nothing */
} th_error;
#endif
