/* trainhost plugin ABI: the entry point and the manifest. */
#ifndef TRAINHOST_PLUGIN_H
#define TRAINHOST_PLUGIN_H
#include "trainhost/host.h"

/* STATIC, constant. get is mandatory; start and stop may be NULL: nothing to do. */
typedef struct th_plugin {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* TH_ABI_MAJOR, TH_ABI_MINOR of the headers that it was built with */
  const char *id, *version;      /* STATIC; equal to the manifest's */
  /* Paired with stop, repeatable, < 1 s. A code: the plugin is listed as refused, with the message. [ctl]
   * {mapped} */
  th_status (*start)(const th_host*, th_error*);
  /* Gives back everything that was taken since start(); after it no callback is called. [ctl] {started} */
  void (*stop)(void);
  /* The table of an interface, STATIC; NULL = not offered, as for every id that it does not know. [any]
   * {started} */
  const void* (*get)(const char* interface_id);
} th_plugin;

/* The only symbol looked up; must not do any work. The major is in its name, so that one library may serve
 * two. [any] {mapped} */
#define TH_ENTRY trainhost_plugin_v1
#define TH_ENTRY_NAME "trainhost_plugin_v1"
#define TH_EXPORT __attribute__((visibility("default")))

/* The manifest: TOML in a section of the file, readable without running code.
 *   id = "acme-mamba"          unique; what --backend= and memory.estimator= name
 *   version = "1.2.0"
 *   kind = "estimator"         or "trainer"
 *   summary = "one line for people"
 *   families = ["mamba"]       model_type values it is made for; [] = any
 *   options = ["chunk"]        keys of [plugin.ID] that it understands
 *   priority = 0               larger wins among equals
 *   abi = "1.0"                interface that it was written for      interfaces = ["..."]  ids that get()
 * knows device = "cpu"             what it runs on                        modes, dtypes = [...]  for people
 *   cpu = ["avx2"]             processor features it needs, as /proc/cpuinfo spells them
 *   requires = ["libx.so.1"]   sonames that it opens itself
 * Or the same TOML in NAME.toml beside NAME.so.
 * id: 1..64 of a-z 0-9 . _ -; at most 64 KiB of TOML; keys that the host does not know are ignored. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define TH_RETAIN , retain /* survives -Wl,--gc-sections */
#endif
#endif
#ifndef TH_RETAIN
#define TH_RETAIN
#endif
#define TH_MANIFEST(toml) \
  __attribute__((section(".trainhost"), used TH_RETAIN)) static const char th_manifest_[] = toml

#ifdef __cplusplus
extern "C" {
#endif
TH_EXPORT const th_plugin* TH_ENTRY(void);
#ifdef __cplusplus
}
#endif
#endif
