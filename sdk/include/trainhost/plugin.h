/* trainhost plugin ABI: the entry point and the manifest. */
#ifndef TRAINHOST_PLUGIN_H
#define TRAINHOST_PLUGIN_H
#include "trainhost/host.h"

/* STATIC and constant. get is mandatory; start and stop may be NULL. */
typedef struct th_plugin {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* TH_ABI_MAJOR, TH_ABI_MINOR of the headers that it was built with */
  const char *id, *version;      /* STATIC; equal to those of the manifest */
  /* Prepares the library; < 1 s. Each start() is followed by one stop(), and the pair may be repeated. On
   * failure the plugin is listed as rejected, with the message. [ctl] {mapped} */
  th_status (*start)(const th_host*, th_error*);
  /* Frees everything allocated since start(). No host callback is called afterwards. [ctl] {started} */
  void (*stop)(void);
  /* Returns the STATIC table of an interface; NULL if the plugin does not offer it or does not know the id.
   * [any] {started} */
  const void* (*get)(const char* interface_id);
} th_plugin;

/* The only symbol that the host looks up. The function only returns a pointer to the table. The major version
 * is part of the name, so that one library can support two major versions. [any] {mapped} */
#define TH_ENTRY trainhost_plugin_v1
#define TH_ENTRY_NAME "trainhost_plugin_v1"
#define TH_EXPORT __attribute__((visibility("default")))

/* The manifest: TOML in a section of the library, which the host reads without running code of the plugin.
 *   id = "acme-mamba"          unique; the name for --backend= and memory.estimator=
 *   version = "1.2.0"
 *   kind = "estimator"         or "trainer", or (since 1.1) "communicator"
 *   summary = "text"           one line for the user
 *   families = ["mamba"]       supported values of model_type; [] = any
 *   options = ["chunk"]        keys of [plugin.ID] that the plugin reads
 *   priority = 0               the larger one wins among equal matches
 *   abi = "1.0"                version of the interface that it was written for
 *   interfaces = ["..."]       ids that get() knows
 *   device = "cpu"             device type that it runs on
 *   modes, dtypes = [...]      information for the user
 *   cpu = ["avx2"]             required processor features, spelled as in /proc/cpuinfo
 *   requires = ["libx.so.1"]   sonames of libraries that it opens itself
 * The same TOML may instead be in NAME.toml beside NAME.so. id: 1..64 characters of a-z 0-9 . _ -. At most
 * 64 KiB of TOML. Unknown keys are ignored. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define TH_RETAIN , retain /* keeps the section with -Wl,--gc-sections */
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
