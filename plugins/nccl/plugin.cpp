// The communicator of NCCL: manifest and the functions of the interface. It connects the processes of
// torchrun, and of launchers that set the same variables.
#include <cstring>
#include <memory>

#include "core/abi/error_guard.hpp"
#include "plugins/common/communicator_calls.hpp"
#include "plugins/nccl/nccl_host_ranks.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(
    "id = \"nccl\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"communicator\"\n"
    "summary = \"connects the processes of torchrun, on GPUs\"\n"
    "device = \"cuda\"\n"
    "options = []\n"
    "priority = 0\n");

namespace trainhost::nccl {
namespace {

using Calls = plugins::CommunicatorCalls<HostRanks>;

th_launch launch_of(const LaunchVariables& v) {
  th_launch out{};
  out.struct_size = sizeof out, out.rank = v.rank, out.ranks = v.ranks;
  out.local_rank = v.local_rank.value_or(0), out.local_ranks = v.local_ranks.value_or(0);
  std::strncpy(out.launcher, "torchrun", sizeof out.launcher - 1);
  return out;
}

th_status probe(const th_host*, th_launch* out, th_error* e) {
  return abi::guard(e, [&] {
    const LaunchVariables v = read_launch_variables();
    cuda::nccl::library();
    cuda::query_driver();
    th::out(out, launch_of(v));
  });
}

th_status create(const th_host*, std::uint64_t timeout_ms, th_communicator_inst** instance, th_launch* out,
                 th_error* e) {
  *instance = nullptr;
  return abi::guard(e, [&] {
    const LaunchVariables v = read_launch_variables();
    auto ranks = std::make_unique<HostRanks>(v, timeout_ms);
    th_launch launch = launch_of(v);
    launch.local_rank = ranks->local_rank(), launch.local_ranks = ranks->local_ranks();
    th::out(out, launch);
    *instance = Calls::instance(ranks.release());
  });
}

constexpr th_communicator kTable = {sizeof kTable, 0,           probe,        create,
                                    Calls::start,  Calls::wait, Calls::abort, Calls::destroy};

const void* table_of(const char* id) { return plugins::communicator_of(id, kTable); }
constexpr th_plugin kPlugin = plugins::communicator_plugin("nccl", table_of);

}  // namespace
}  // namespace trainhost::nccl

extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) { return &trainhost::nccl::kPlugin; }
