/* trainhost plugin ABI: host extension "trainhost.config/1": numbers and texts of the model's config.json, so
 * that a plugin for an architecture that th_model has no fields for needs no JSON parser. Asked for with
 * host->extension(). */
#ifndef TRAINHOST_CONFIG_H
#define TRAINHOST_CONFIG_H
#include "trainhost/model.h"

#define TH_CONFIG_ID "trainhost.config/1"

/* Each function looks up `dotted_key` in the JSON text of th_model.config_json: names of objects' members and
 * indices of arrays from 0, joined by dots ("num_experts", "rope_scaling.factor", "layer_types.3"). TH_OK:
 * *value was written. TH_E_ABSENT: the model has no config, or no such key, or null stands there. TH_E_ARG:
 * there, but of another kind, or the config is no JSON. In both *value is untouched: a default may stand in
 * it before. Pure, and quick enough for match(): some 50 us for a config of 10 kB. All [any] {started}. */
typedef struct th_config th_config;
struct th_config {
  uint32_t struct_size, reserved;
  void* self; /* the host's */
  /* A whole number, also one written as 4.0; true is 1 and false is 0. TH_E_ARG beyond 63 bits. */
  th_status (*integer)(const th_config*, const th_model*, const char* dotted_key, int64_t* value);
  /* Any number. */
  th_status (*number)(const th_config*, const th_model*, const char* dotted_key, double* value);
  /* A string, cut to text_bytes with its terminating NUL, never inside a character. length: bytes of the
   * whole string without NUL, may be NULL; the text was cut when it is >= text_bytes. text may be NULL when
   * text_bytes is 0. */
  th_status (*text)(const th_config*, const th_model*, const char* dotted_key, char* text,
                    uint64_t text_bytes, uint64_t* length);
  /* Items of an array, members of an object; "" is the whole config. */
  th_status (*count)(const th_config*, const th_model*, const char* dotted_key, uint64_t* items);
};
#endif
