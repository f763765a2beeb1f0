/* trainhost plugin ABI: interface "trainhost.device/1": the devices of a trainer. Optional: a trainer that
 * lacks it is judged against the host's free memory, or against the budget that the user names. */
#ifndef TRAINHOST_DEVICE_H
#define TRAINHOST_DEVICE_H
#include "trainhost/host.h"

#define TH_DEVICE_ID "trainhost.device/1"

/* device: as in create(), below the number that probe() gives. Neither call leaves a context behind.
 * TH_E_UNAVAILABLE where there is no device to ask. Both functions are mandatory. */
typedef struct th_device {
  uint32_t struct_size, reserved;
  /* Bytes now: what a run could take, and what the device has in all; free <= total. [any] {started} */
  th_status (*memory)(const th_host*, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes, th_error*);
  /* "NVIDIA H200", cut to text_bytes with its terminating NUL. [any] {started} */
  th_status (*name)(const th_host*, int32_t device, char* text, uint32_t text_bytes, th_error*);
} th_device;
#endif
