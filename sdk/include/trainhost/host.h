/* trainhost plugin ABI: functions that the host offers to a plugin. The general rules are in status.h.
 * The table is valid from start() until stop() has returned, so a plugin may keep the pointer. A plugin
 * without start() uses the pointer that each call passes. No callback is NULL. All callbacks: [any]
 * {started}, inside a plugin call. */
#ifndef TRAINHOST_HOST_H
#define TRAINHOST_HOST_H
#include "trainhost/status.h"

/* Memory tiers. */
#define TH_TIER_DEVICE 1u /* memory of the accelerator */
#define TH_TIER_PINNED 2u /* host memory that a device accesses directly */
#define TH_TIER_HOST 3u
#define TH_TIER_DISK 4u
#define TH_TIER_SLOTS 8u /* length of arrays indexed by tier; later minors name 5..7 */

#define TH_LOG_DEBUG 0
#define TH_LOG_INFO 1
#define TH_LOG_WARN 2
#define TH_LOG_ERROR 3

typedef struct th_host th_host;
struct th_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* version of the host; do not send it constants of a later one */
  void* self;                    /* owned by the host */
  const char *name, *version;    /* of the host program; STATIC */
  /* Prints one line for the user. level: TH_LOG_*. where: one word that names the part of the plugin; may be
   * NULL. [any] */
  void (*log)(const th_host*, int32_t level, const char* where, const char* text);
  /* Allocates zero-filled memory of the pinned or host tier; the host counts it under `tag`. bytes may be 0;
   * align: power of two, 0 = 1. Returns NULL if the budget or the system has not enough memory, or if an
   * argument is invalid. Tensor memory from any other allocator (of a device, for example) is reported with
   * took(). [any] */
  void* (*alloc)(const th_host*, uint64_t bytes, uint64_t align, uint32_t tier, const char* tag);
  /* Frees memory of alloc(); at the latest before stop() returns. NULL is ignored. [any] */
  void (*release)(const th_host*, void*);
  /* Reports bytes that the plugin allocated (> 0) or freed (< 0) with its own allocator; called at the time
   * of the allocation. [any] */
  void (*took)(const th_host*, int64_t bytes, uint32_t tier, const char* tag);
  /* Returns != 0 when the user wants to stop; the plugin then returns TH_E_CANCELLED soon. Poll at least
   * every 100 ms of work. [any] */
  int32_t (*cancelled)(const th_host*);
  /* Reports the progress of a long call. stage: one word for the current activity; fraction: 0..1 of it, < 0
   * = unknown. [any] */
  void (*progress)(const th_host*, const char* stage, double fraction);
  /* Returns the value of a key in the plugin's own table [plugin.ID] as text ("64", "true", "text"); NULL if
   * the user did not set it. Valid until stop() has returned. [any] */
  const char* (*option)(const th_host*, const char* dotted_key);
  uint32_t thread_budget; /* CPU threads that the plugin may use, the calling thread included; >= 1 */
  uint32_t reserved;
  /* Returns the function table of an extension by id ("trainhost.config/1", or of another vendor:
   * "com.acme.x/3"), valid until stop() has returned; NULL if this host does not have it. [any] */
  const void* (*extension)(const th_host*, const char* id);
};
#endif
