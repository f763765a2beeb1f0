// Estimators with unusual linkage: exported symbols, threads that keep running, another run-time library.
// Each reports value() bytes, so a symbol of another library gives a wrong number. A macro selects the
// variant;
// ../runtime_isolation_test.cpp.
#include <string>
#include <trainhost/trainhost.hpp>
#include <vector>

#ifdef LINKED_OTHER
#define LINKED_ID "openmp-other"
#elif !defined(LINKED_ID)
#define LINKED_ID "sample"
#endif
TH_MANIFEST("id = \"" LINKED_ID "\"\nversion = \"1\"\nkind = \"estimator\"\nfamilies = [\"llama\"]\n");

#if defined(LINKED_THREAD_LOCAL)  // a destructor that runs when a thread of the host ends
namespace {
struct ThreadLocalText {
  std::string text = "a text of 62 characters, which std::string stores on the heap.";
  ~ThreadLocalText() { text.clear(); }
};
thread_local ThreadLocalText thread_text;
std::uint64_t value() { return thread_text.text.size(); }
}  // namespace

#elif defined(LINKED_UNIQUE)  // a symbol that the dynamic linker shares within the whole process
template <class T>
struct TH_EXPORT SharedNumber {
  static int number;
};
template <class T>
int SharedNumber<T>::number = LINKED_UNIQUE;
namespace {
std::uint64_t value() { return static_cast<std::uint64_t>(SharedNumber<int>::number); }
}  // namespace

#elif defined(LINKED_WEAK)  // hundreds of exported weak symbols of std:: templates
template <int N>
TH_EXPORT __attribute__((noinline, used)) std::uint64_t count(const std::vector<int>& of) {
  if constexpr (N == 0)
    return of.size();
  else
    return count<N - 1>(of) + 1;
}
namespace {
std::uint64_t value() { return count<500>({1, 2}); }
}  // namespace

#elif defined(LINKED_HELPER)  // a global name that another plugin exports too
extern "C" TH_EXPORT int helper() { return LINKED_HELPER; }
namespace {
std::uint64_t value() { return static_cast<std::uint64_t>(helper()); }
}  // namespace

#elif defined(LINKED_OPENMP)  // threads of an OpenMP library
namespace {
std::uint64_t value() {
  int n = 0;
#pragma omp parallel for num_threads(3) reduction(+ : n)
  for (int i = 0; i < 1000; ++i) n += i % 7;
  return static_cast<std::uint64_t>(n);
}
}  // namespace
#endif

namespace {
struct Linked {
  static int match(const th_model&, const th_run&) noexcept { return 7; }
  static void estimate(const th_host&, const th_model&, const th_run&, const th_profile*, th::Tree& tree) {
    tree.exact({"value"}, value());
  }
};
}  // namespace

TH_PLUGIN(LINKED_ID, "1", th::estimator<Linked>())
