/* trainhost plugin ABI: the rules of the interface, status codes and errors. Plain C11; frozen as major 1.
 *
 * Rules for every header in this folder:
 *   R1  Every struct begins with struct_size. Within a major version, fields are only appended. The owner of
 *       a struct fills it with zeros and then sets struct_size; the other side never writes beyond it. A
 *       field that is zero is unset; `reserved` fields always stay zero. The host does all version
 *       negotiation: a struct that it passes is never shorter than in the minor version that the plugin was
 *       built with, and is followed by zeros up to 4 KiB. A plugin therefore reads and writes every field
 *       that its own headers declare, without any test.
 *   R2  Structs contain fixed-width integers and double only: no enum, bool, bitfield, size_t, long or union.
 *   R3  Strings are UTF-8 and NUL-terminated. They are borrowed for the duration of the call, except those
 *       marked STATIC, which are valid as long as the library is loaded.
 *   R4  Lists are never passed as arrays of structs, because structs may grow: the producer calls a sink
 *       once per item, and the consumer copies the item.
 *   R5  No exception, panic, longjmp, exit or signal may leave a function of either side. Process state
 *       (signals, locale, floating-point mode, working directory, environment, standard streams) is left
 *       unchanged, also by constructors of the library.
 *   R6  Memory never changes its owner. The caller owns texts and structs, and the callee fills them. Memory
 *       is freed by the side that allocated it.
 *
 * Null pointers: a required pointer that is NULL gives TH_E_ARG, never a crash. A NULL th_error is always
 * allowed: the caller then wants only the code.
 *
 * Threads. Every function has one of these tags:
 *   [any]   Any thread; also concurrently with itself and with every other function.
 *   [inst]  One call at a time per instance; successive calls may come from different threads.
 *   [ctl]   One call at a time per library, while the library has no instance.
 * Host callbacks are all [any]. They may be called only inside a plugin call, or on a thread that the plugin
 * joins before that call returns (threads of an instance: before destroy() returns).
 *
 * Life cycle. Every function has the states in which the host calls it as a tag. In any other state a plugin
 * returns TH_E_STATE and changes nothing.
 *   library:   {mapped} entry known -> start() -> {started} -> stop() -> {mapped}
 *   instance:  create() -> {created} -> init() -> {ready} -> step() that updates -> {stepped}
 *              A call that returns DEVICE_LOST, DEVICE_OOM, HOST_OOM, IO or INTERNAL -> {lost}, where only
 *              destroy() may be called. Any other code leaves state, parameters and moments unchanged.
 *   {exists} is created, ready, stepped or lost. {ready+} is ready or stepped. {created+} is created, ready
 * or stepped. */
#ifndef TRAINHOST_STATUS_H
#define TRAINHOST_STATUS_H
#include <stddef.h>
#include <stdint.h>

/* Frozen: everything that minor n declares exists in every later minor (sdk/abi/README.md). */
#define TH_ABI_MAJOR 1u
#define TH_ABI_MINOR 1u

/* True if field f of struct type T is within the struct_size of *p. Plugins need this only for structs that
 * did not come from a host. */
#define TH_HAS(p, T, f) ((p)->struct_size >= (uint32_t)(offsetof(T, f) + sizeof((p)->f)))

/* 0: success; < 0: failure. A code states what the CALLER can do about it. A value that is not listed here is
 * a bug of the plugin. */
typedef int32_t th_status;
#define TH_OK 0
#define TH_E_ARG (-1)         /* an argument breaks the rules of this interface: correct the call */
#define TH_E_UNSUPPORTED (-2) /* valid, but not in this plugin: try the next plugin, or change the run */
#define TH_E_UNAVAILABLE (-3) /* no device, driver, library or licence: use another plugin or machine */
#define TH_E_DEVICE_OOM (-4)  /* not enough device memory: shrink the run by error.bytes_needed */
#define TH_E_HOST_OOM (-5)    /* not enough host memory or budget: shrink the run or raise the budget */
#define TH_E_CANCELLED (-6)   /* host->cancelled() returned != 0: nothing was applied */
#define TH_E_STATE (-7)       /* wrong order of calls: bring the instance into the required state first */
#define TH_E_NONFINITE (-8)   /* loss or gradient not finite; step not applied: continue, lower lr, or stop */
#define TH_E_DEVICE_LOST (-9) /* device lost: destroy(), create() again and load a checkpoint */
#define TH_E_IO (-10)         /* a file or connection failed (error.native_code): repair it and start again */
#define TH_E_INTERNAL (-11)   /* bug of the plugin: destroy() the instance and report it to the author */
#define TH_E_ABSENT (-12)     /* no item of the given name: use your default */

/* Details of a failure. The caller owns it and fills it with zeros; the callee fills it when it returns a
 * code < 0 and keeps no pointer to it. */
typedef struct th_error {
  uint32_t struct_size;
  th_status code;      /* as returned; if they differ, the returned code counts */
  int32_t native_code; /* code of the vendor library named by native_domain; 0 = none */
  uint32_t reserved;
  uint64_t bytes_needed;  /* with TH_E_*_OOM: missing bytes; 0 = unknown */
  char native_domain[16]; /* "cuda", "cublas", "errno"; NUL-terminated, like the two texts below */
  char message[320];      /* one sentence: what failed, with the value */
  char hint[160];         /* what the user can do; "" = no hint */
} th_error;
#endif
