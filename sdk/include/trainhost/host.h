/* trainhost plugin ABI: what the host offers to a plugin. All callbacks [any]; see status.h for the rules. */
#ifndef TRAINHOST_HOST_H
#define TRAINHOST_HOST_H
#include "trainhost/status.h"

#define TH_TIER_DEVICE 1u
#define TH_TIER_PINNED 2u
#define TH_TIER_HOST 3u
#define TH_TIER_DISK 4u

#define TH_LOG_DEBUG 0
#define TH_LOG_INFO 1
#define TH_LOG_WARN 2
#define TH_LOG_ERROR 3

typedef struct th_host th_host;
struct th_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  void *self;
  const char *name, *version; /* of the host program */
  void (*log)(const th_host *, int32_t level, const char *where, const char *text);
  /* Memory of the pinned or host tier, zero-filled, counted by the host's ledger under `tag`. align: a power of two.
   * NULL: the budget is hit or the system has none left. A plugin that takes tensor memory elsewhere (a device
   * allocator) reports it with took(). */
  void *(*alloc)(const th_host *, uint64_t bytes, uint64_t align, uint32_t tier, const char *tag);
  void (*release)(const th_host *, void *);
  /* Bytes that the plugin took (> 0) or gave back (< 0) by an allocator of its own, at the moment it did so. */
  void (*took)(const th_host *, int64_t bytes, uint32_t tier, const char *tag);
  int32_t (*cancelled)(const th_host *); /* poll at least every 100 ms of work; != 0: return TH_E_CANCELLED */
  void (*progress)(const th_host *, const char *stage, double fraction);
  const char *(*option)(const th_host *, const char *dotted_key); /* this plugin's own [plugin.NAME] table; NULL = absent */
  uint32_t thread_budget; /* CPU threads that this plugin may use in all */
  uint32_t reserved;
  const void *(*extension)(const th_host *, const char *id); /* "trainhost.x/1", "com.acme.x/3"; NULL = none */
};
#endif
