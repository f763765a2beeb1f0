/* trainhost plugin ABI: interface "trainhost.device/1": memory and name of a trainer's devices. Optional: for
 * a trainer without it, plans are compared with the host's free memory, or with the budget that the user
 * sets. */
#ifndef TRAINHOST_DEVICE_H
#define TRAINHOST_DEVICE_H
#include "trainhost/host.h"

#define TH_DEVICE_ID "trainhost.device/1"

/* device: index as in create(), less than the count of probe(). Neither call leaves a device context behind.
 * TH_E_UNAVAILABLE: no such device. Both functions are mandatory. */
typedef struct th_device {
  uint32_t struct_size, reserved;
  /* Bytes that a run could allocate now, and bytes of the device; free <= total. [any] {started} */
  th_status (*memory)(const th_host*, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes, th_error*);
  /* Name such as "NVIDIA H200", truncated to text_bytes including its NUL. [any] {started} */
  th_status (*name)(const th_host*, int32_t device, char* text, uint32_t text_bytes, th_error*);
} th_device;
#endif
