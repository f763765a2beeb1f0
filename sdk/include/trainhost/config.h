/* trainhost plugin ABI: host extension "trainhost.config/1". Reads numbers and texts of the model's
 * config.json, so that a plugin for an architecture beyond th_model needs no JSON parser. The plugin gets it
 * with host->extension(). */
#ifndef TRAINHOST_CONFIG_H
#define TRAINHOST_CONFIG_H
#include "trainhost/model.h"

#define TH_CONFIG_ID "trainhost.config/1"

/* Each function looks up `dotted_key` in th_model.config_json: member names of objects and indices of arrays
 * from 0, joined by dots ("num_experts", "rope_scaling.factor", "layer_types.3"). TH_OK: *value was written.
 * TH_E_ABSENT: the model has no config, or the key is missing or null. TH_E_ARG: the value has another type,
 * or the config is not valid JSON. On failure *value is unchanged, so it may hold a default. Without side
 * effects; about 50 us for a config of 10 kB, fast enough for match(). All [any] {started}. */
typedef struct th_config th_config;
struct th_config {
  uint32_t struct_size, reserved;
  void* self; /* owned by the host */
  /* Reads an integer, also one written as 4.0; true is 1, false is 0. TH_E_ARG if it exceeds 63 bits. */
  th_status (*integer)(const th_config*, const th_model*, const char* dotted_key, int64_t* value);
  /* Reads any number. */
  th_status (*number)(const th_config*, const th_model*, const char* dotted_key, double* value);
  /* Reads a string, truncated to text_bytes including its NUL, never inside a UTF-8 character. *length: bytes
   * of the whole string without NUL (the text was truncated if *length >= text_bytes); length may be NULL.
   * text may be NULL if text_bytes is 0. */
  th_status (*text)(const th_config*, const th_model*, const char* dotted_key, char* text,
                    uint64_t text_bytes, uint64_t* length);
  /* Counts items of an array or members of an object; the key "" is the whole config. */
  th_status (*count)(const th_config*, const th_model*, const char* dotted_key, uint64_t* items);
};
#endif
