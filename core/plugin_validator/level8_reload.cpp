// Level 8: many instances in one process leave nothing behind, and the library can be unloaded. Growth is
// measured from instance 100 to instance 1000: allocators, pools and caches have reached their size by then.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kInstances = 1000, kWarmInstances = 100;
constexpr std::uint64_t kHeapSlack = 32 << 10, kResidentSlack = 4 << 20;  // bytes over 900 instances

/// Creates, initialises, sometimes steps, and destroys one instance. Calls the plugin directly, because
/// WatchedPlugin stores its arguments, which would be the growth that is looked for.
/// WatchedPlugin stores its arguments.
void run_one_instance(WatchedPlugin& plugin, const th_trainer& t, const Sample& s, const Batch& batch,
                      bool steps) {
  CheckingHost::CallbacksAllowed allowed(plugin.host());
  // Plain structs: these calls are correct, and others check the arguments.
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  th_error e{};
  e.struct_size = sizeof e;
  th_trainer_inst* i = nullptr;
  th_status status = t.create(plugin.host().get(), 0, &m, &r, &i, &e);
  if (status == TH_OK) status = t.init(i, 7, &e);
  if (status == TH_OK && steps) {
    th_step step{};
    th_step_out out{};
    step.struct_size = sizeof step, out.struct_size = sizeof out;
    step.batch = batch.sequences, step.seq = batch.seq, step.tokens = batch.tokens.data(),
    step.targets = batch.targets.data();
    step.lr = 1e-3;
    status = t.step(i, &step, &out, &e);
  }
  if (i) t.destroy(i);
  expect(status == TH_OK, "one of {} instances failed with {} ({})", kInstances, status_text(status),
         std::string(e.message, ::strnlen(e.message, sizeof e.message)));
}

/// The value of `count` after the first kWarmInstances instances and after all.
template <class Count>
std::pair<std::uint64_t, std::uint64_t> count_over_instances(WatchedPlugin& plugin, Count count) {
  const Sample s = plugin.sample();
  const th_trainer t = plugin.library().trainer();
  const Batch batch = make_batch(s, plugin.seed());
  std::uint64_t before = 0;
  for (int n = 1; n <= kInstances; ++n) {
    // Every 20th instance takes a step, since a step is much slower than create().
    run_one_instance(plugin, t, s, batch, n % 20 == 0);
    if (n == kWarmInstances) before = count();
  }
  return {before, count()};
}

void check_instances_free_heap(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  std::uint64_t resident_before = 0;
  const auto [before, after] = count_over_instances(plugin, [&] {
    // Resident memory is read at the same time as the heap: this is the first call of `count`.
    if (resident_before == 0) resident_before = resident_bytes();
    return heap_bytes();
  });
  expect(after <= before + kHeapSlack, "{} instances left {} bytes of heap allocated; none were expected",
         kInstances - kWarmInstances, after - before);
  const std::uint64_t resident = resident_bytes();
  expect(resident <= resident_before + kResidentSlack,
         "{} instances increased the resident memory by {} bytes; none were expected",
         kInstances - kWarmInstances, resident - resident_before);
}

void check_instances_free_descriptors(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // Two counts in one number: descriptors above, threads below.
  const auto [before, after] = count_over_instances(
      plugin, [] { return std::uint64_t{open_descriptors()} << 32 | running_threads(); });
  expect(after >> 32 <= before >> 32, "{} instances left {} more descriptors open; none were expected",
         kInstances - kWarmInstances, (after >> 32) - (before >> 32));
  const std::uint32_t threads = static_cast<std::uint32_t>(after), were = static_cast<std::uint32_t>(before);
  expect(threads <= were, "{} instances left {} more threads running; none were expected",
         kInstances - kWarmInstances, threads - were);
}

/// In a process of its own: mapped without RTLD_NODELETE, used, closed; then its thread ends, then the
/// process.
void check_unloading(WatchedPlugin& plugin) {
  const bool trainer = plugin.is_trainer();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto use = [&] {
      // _exit(): a crash in exit handlers must not be taken for the failure of this step.
      if (!plugin.map_until_closed()) ::_exit(3);
      try {
        Started started(plugin);
        plugin.report(plugin.sample());
        std::uint32_t devices = 0;
        if (trainer && plugin.probe(&devices).ok() && devices > 0) {
          WatchedInstance i(plugin, plugin.sample());
          i.create_and_init();
          i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
        }
      } catch (const std::exception&) {
        ::_exit(3);  // other checks say what is wrong with that
      }
      plugin.unmap_library();
    };
    // Two threads, one after the other: data with thread lifetime is destroyed when each ends, after the
    // library was unmapped.
    std::thread(use).join();
    std::thread(use).join();
    // exit() runs the handlers that the library may have registered, now unmapped.
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(!WIFSIGNALED(status), "the process was ended by signal {} after stop() and dlclose()",
         WTERMSIG(status));
  if (WEXITSTATUS(status) == 3) throw CheckSkipped("it could not be used in a process that unloads it");
  expect(WEXITSTATUS(status) == 0,
         "the process ended with code {} after stop() and dlclose(); 0 was expected", WEXITSTATUS(status));
}

}  // namespace

std::vector<Check> repeated_use_checks() {
  return {
      {"C-121",
       8,
       "It can be unloaded after stop()",
       "trainhost keeps libraries mapped, but other hosts unload them. A destructor of thread-local data, "
       "a handler, or a thread that is still active after stop() would then run code that is no longer "
       "mapped. Fix: free such resources in stop(), or link with -z nodelete.",
       {"C-054", "C-051", "C-070", "C-090"},
       check_unloading,
       true},
      {"T-083",
       8,
       "A thousand instances leak no memory",
       "Sweeps, searches and tests create thousands of instances. Heap and resident memory after 1000 "
       "instances must equal those after 100. Fix: free in destroy() what create() allocates; valgrind "
       "--leak-check=full names the call.",
       {"T-042", "T-043"},
       check_instances_free_heap,
       true,
       20},
      {"T-084",
       8,
       "A thousand instances leak no descriptors or threads",
       "A process has 1024 descriptors. A thread pool may stay if it does not grow with each instance. "
       "Fix: close and join in destroy() what create() opens and starts.",
       {"T-022"},
       check_instances_free_descriptors,
       true,
       20},
  };
}

}  // namespace trainhost::plugin_validator
