// Level 8: many lives in one process leave nothing behind, and a host that does close libraries can close
// this one.
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

constexpr int kLives = 1000, kWarmLives = 100;
constexpr std::uint64_t kHeapSlack = 32 << 10, kResidentSlack = 4 << 20;  // bytes over 900 lives

/// One life without the bench, which keeps what it was given: create, init and a step now and then, destroy.
void life(Bench& b, const th_trainer& t, const Sample& s, const Batch& batch, bool steps) {
  CheckingHost::Legal legal(b.host());
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  th_error e{};
  e.struct_size = sizeof e;
  th_trainer_inst* i = nullptr;
  th_status status = t.create(b.host().get(), 0, &m, &r, &i, &e);
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
  expect(status == TH_OK, "one of {} lives ended with {} ({})", kLives, status_text(status),
         std::string(e.message, ::strnlen(e.message, sizeof e.message)));
}

/// What `count` gives after the warm lives and after all.
template <class Count>
std::pair<std::uint64_t, std::uint64_t> over_lives(Bench& b, Count count) {
  const Sample s = b.sample();
  const th_trainer t = b.subject().trainer();
  const Batch batch = make_batch(s, b.seed());
  std::uint64_t before = 0;
  for (int n = 1; n <= kLives; ++n) {
    life(b, t, s, batch, n % 20 == 0);
    if (n == kWarmLives) before = count();
  }
  return {before, count()};
}

void heap_stays_flat(Bench& b) {
  Started started(b);
  b.need_device();
  std::uint64_t resident_before = 0;
  const auto [before, after] = over_lives(b, [&] {
    if (resident_before == 0) resident_before = resident_bytes();
    return heap_bytes();
  });
  expect(after <= before + kHeapSlack,
         "{} lives of an instance left {} bytes of heap taken; none were expected", kLives - kWarmLives,
         after - before);
  const std::uint64_t resident = resident_bytes();
  expect(resident <= resident_before + kResidentSlack,
         "{} lives of an instance made the process {} bytes larger; none were "
         "expected",
         kLives - kWarmLives, resident - resident_before);
}

void no_descriptor_no_thread_stays(Bench& b) {
  Started started(b);
  b.need_device();
  const auto [before, after] =
      over_lives(b, [] { return std::uint64_t{open_descriptors()} << 32 | running_threads(); });
  expect(after >> 32 <= before >> 32,
         "{} lives of an instance left {} more descriptors open; none were expected", kLives - kWarmLives,
         (after >> 32) - (before >> 32));
  const std::uint32_t threads = static_cast<std::uint32_t>(after), were = static_cast<std::uint32_t>(before);
  expect(threads <= were, "{} lives of an instance left {} more threads running; none were expected",
         kLives - kWarmLives, threads - were);
}

/// In a process of its own: mapped without RTLD_NODELETE, used, closed; then its thread ends, then the
/// process.
void can_be_closed(Bench& b) {
  const bool trainer = b.is_trainer();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto use = [&] {
      if (!b.subject_until_closed()) ::_exit(3);
      try {
        Started started(b);
        b.report(b.sample());
        std::uint32_t devices = 0;
        if (trainer && b.probe(&devices).ok() && devices > 0) {
          Instance i(b, b.sample());
          i.begin();
          i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
        }
      } catch (const std::exception&) {
        ::_exit(3);  // other checks say what is wrong with that
      }
      b.close_subject();
    };
    std::thread(use).join();
    std::thread(use).join();
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(!WIFSIGNALED(status), "the process died of signal {} after stop() and dlclose()", WTERMSIG(status));
  if (WEXITSTATUS(status) == 3) throw NotHere("it could not be used in a process that closes it");
  expect(WEXITSTATUS(status) == 0,
         "the process ended with code {} after stop() and dlclose(); 0 was expected", WEXITSTATUS(status));
}

}  // namespace

std::vector<Check> many_lives_checks() {
  return {
      {"C-121",
       8,
       "It can be closed after stop()",
       "trainhost keeps libraries mapped, other hosts close them: a destructor of a thread's own data, a "
       "handler or a thread "
       "that outlives stop() then runs code that is gone. Give such things back in stop(), or link with -z "
       "nodelete.",
       {"C-054", "C-051", "C-070", "C-090"},
       can_be_closed,
       true},
      {"T-083",
       8,
       "A thousand instances leave no memory behind",
       "Sweeps, searches and tests make instances by the thousand. Heap and resident memory after 1000 lives "
       "are those after "
       "100.",
       {"T-042", "T-043"},
       heap_stays_flat,
       true,
       20},
      {"T-084",
       8,
       "A thousand instances leave no descriptor and no thread",
       "A process has 1024 descriptors. Threads of a pool may stay if there are no more of them with each "
       "instance.",
       {"T-022"},
       no_descriptor_no_thread_stays,
       true,
       20},
  };
}

}  // namespace trainhost::plugin_validator
