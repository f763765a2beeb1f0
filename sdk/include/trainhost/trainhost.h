/* trainhost plugin ABI: includes every C header of the interface. Plain C11; also valid C++; mirrored in
 * Rust. */
#ifndef TRAINHOST_H
#define TRAINHOST_H
#include "trainhost/communicator.h"
#include "trainhost/config.h"
#include "trainhost/device.h"
#include "trainhost/estimator.h"
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"
#include "trainhost/plugin.h"
#include "trainhost/profiler.h"
#include "trainhost/status.h"
#include "trainhost/trainer.h"
#endif
