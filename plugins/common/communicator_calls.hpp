// The functions of a communicator (trainhost/communicator.h) on an instance, which is an object of a class
// with start(), wait() and abort(): what the communicators of MPI and NCCL have in common.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "trainhost/communicator.h"
#include "trainhost/plugin.h"

namespace trainhost::plugins {

template <class Ranks>
struct CommunicatorCalls {
  static Ranks& of(th_communicator_inst* i) { return *reinterpret_cast<Ranks*>(i); }
  static th_communicator_inst* instance(Ranks* ranks) {
    return reinterpret_cast<th_communicator_inst*>(ranks);
  }
  static th_status start(th_communicator_inst* i, const th_collective* c, std::uint64_t* ticket,
                         th_error* e) {
    return abi::guard(e, [&] { *ticket = of(i).start(*c); });
  }
  static th_status wait(th_communicator_inst* i, std::uint64_t ticket, th_error* e) {
    return abi::guard(e, [&] { of(i).wait(ticket); });
  }
  static void abort(th_communicator_inst* i, std::int32_t code) { of(i).abort(code); }
  static void destroy(th_communicator_inst* i) { delete &of(i); }
};

/// For get() of a plugin with one interface, `table`.
inline const void* communicator_of(const char* id, const th_communicator& table) {
  return std::strcmp(id, TH_COMMUNICATOR_ID) == 0 ? &table : nullptr;
}

/// The description of a communicator plugin.
constexpr th_plugin communicator_plugin(const char* id, const void* (*get)(const char*)) {
  return {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, id, "0.1.0", nullptr, nullptr, get};
}

}  // namespace trainhost::plugins
