/* trainhost plugin ABI, all of it. Plain C11; usable as is from C++ and mirrored by repr(C) in Rust. */
#ifndef TRAINHOST_H
#define TRAINHOST_H
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
