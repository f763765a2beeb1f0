/* trainhost plugin ABI: what the host offers to a plugin. See status.h for the rules.
 * The table lives from start() until stop() has returned, so a plugin may keep the pointer; a plugin without
 * start() uses the one that each call brings. No callback is ever NULL. All callbacks: [any] {started},
 * inside a plugin call. */
#ifndef TRAINHOST_HOST_H
#define TRAINHOST_HOST_H
#include "trainhost/status.h"

/* Where memory is. */
#define TH_TIER_DEVICE 1u /* of the accelerator */
#define TH_TIER_PINNED 2u /* host memory that a device reads and writes directly */
#define TH_TIER_HOST 3u
#define TH_TIER_DISK 4u
#define TH_TIER_SLOTS 8u /* length of arrays that are indexed by tier; later minors name 5..7 */

#define TH_LOG_DEBUG 0
#define TH_LOG_INFO 1
#define TH_LOG_WARN 2
#define TH_LOG_ERROR 3

typedef struct th_host th_host;
struct th_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* that the host speaks; a constant of a later minor is not sent to it */
  void* self;                    /* the host's */
  const char *name, *version;    /* of the host program; STATIC */
  /* A line for the user. level: TH_LOG_*; where: a word for the place, may be NULL. [any] */
  void (*log)(const th_host*, int32_t level, const char* where, const char* text);
  /* Memory of the pinned or host tier, zero-filled, counted by the host's ledger under `tag`. bytes may be 0;
   * align: a power of two, 0 = 1. NULL: the budget is hit, the system has none left, or an argument is wrong.
   * A plugin that takes tensor memory elsewhere (a device allocator) reports it with took(). [any] */
  void* (*alloc)(const th_host*, uint64_t bytes, uint64_t align, uint32_t tier, const char* tag);
  /* Gives back what alloc() gave, before stop() at the latest; NULL is ignored. [any] */
  void (*release)(const th_host*, void*);
  /* Bytes that the plugin took (> 0) or gave back (< 0) by an allocator of its own, at the moment it did so.
   * [any] */
  void (*took)(const th_host*, int64_t bytes, uint32_t tier, const char* tag);
  /* != 0: return TH_E_CANCELLED soon. Poll at least every 100 ms of work. [any] */
  int32_t (*cancelled)(const th_host*);
  /* How far a long call is: a word for what it does, and 0..1 of it; < 0 = not known. [any] */
  void (*progress)(const th_host*, const char* stage, double fraction);
  /* The value of a key of this plugin's own [plugin.ID] table, as text ("64", "true", "text"); NULL = the
   * user did not set it. Valid until stop() has returned. [any] */
  const char* (*option)(const th_host*, const char* dotted_key);
  uint32_t thread_budget; /* CPU threads that this plugin may use in all, the caller's included; >= 1 */
  uint32_t reserved;
  /* A table of functions by id, "trainhost.config/1" or anybody's "com.acme.x/3", valid until stop() has
   * returned; NULL = this host has none. [any] */
  const void* (*extension)(const th_host*, const char* id);
};
#endif
