// Structs that begin or end at an inaccessible page: a read or write outside struct_size crashes here.
// Covers every struct of the boundary that either side may see shorter than its own, at every size from
// struct_size itself to the full struct.
#include <sys/mman.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <stdexcept>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/abi/zero_padded.hpp"
#include "core/plugin/known_fields.hpp"
#include "core/plugin/save_sink.hpp"
#include "trainhost/trainhost.hpp"

namespace tb = trainhost::abi;
namespace tp = trainhost::plugin;

namespace {

/// A page between two that fault.
class Page {
 public:
  Page() : size_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* p = ::mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("no three pages");
    begin_ = static_cast<std::byte*>(p) + size_;
    if (::mprotect(begin_, size_, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("no page to write to");
  }
  ~Page() { ::munmap(begin_ - size_, 3 * size_); }
  Page(const Page&) = delete;
  std::byte* at_begin() { return begin_; }
  std::byte* at_end(std::size_t bytes) { return begin_ + size_ - bytes; }

 private:
  std::size_t size_;
  std::byte* begin_ = nullptr;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_UNDEFINED__)
constexpr std::size_t kStep = 8;  // a sanitizer looks at alignment; what lies at a page's end must be aligned
#else
constexpr std::size_t kStep = 1;
#endif

/// Calls f with the first n bytes of `whole` for every n, once against the page behind and once against the
/// one before.
template <class T, class F>
void at_every_size(const T& whole, F f, std::size_t least = sizeof(std::uint32_t)) {
  Page page;
  for (std::size_t n = (least + kStep - 1) / kStep * kStep; n <= sizeof(T); n += kStep)
    for (std::byte* where : {page.at_end(n), page.at_begin()}) {
      std::memcpy(where, &whole, n);
      const auto size = static_cast<std::uint32_t>(n);
      std::memcpy(where, &size, sizeof size);
      f(reinterpret_cast<T*>(where));
      std::uint32_t after = 0;
      std::memcpy(&after, where, sizeof after);
      BOOST_REQUIRE_EQUAL(after, size);
    }
}

/// A struct of no zeros, so that a field that is read where it is not shows.
template <class T>
T filled() {
  T t;
  std::memset(static_cast<void*>(&t), 0x11, sizeof t);
  t.struct_size = sizeof t;
  return t;
}

template <class T>
void both_glues() {
  T whole = filled<T>();
  at_every_size(whole, [&](T* t) {
    T copy = th::in(t);
    const std::size_t n = t->struct_size;
    BOOST_REQUIRE(std::memcmp(reinterpret_cast<char*>(&copy) + 4, reinterpret_cast<const char*>(&whole) + 4,
                              n - 4) == 0);
    for (std::size_t i = n; i < sizeof(T); ++i) BOOST_REQUIRE_EQUAL(reinterpret_cast<char*>(&copy)[i], 0);
    th::out(t, whole);
  });
}

/// A table is rejected or read, and nothing else.
template <class T>
void table(std::size_t needed) {
  at_every_size(filled<T>(), [&](T* t) {
    const bool enough = t->struct_size >= needed;
    try {
      tp::copy_known_fields<T>(t, needed, "table");
      BOOST_REQUIRE(enough);
    } catch (const tp::Rejection&) {
      BOOST_REQUIRE(!enough);
    }
  });
}

struct Nothing {
  static int match(const th_model& m, const th_run& r) noexcept { return m.layers + r.kv_page != 0; }
  static void estimate(const th_host&, const th_model&, const th_run&, const th_profile*, th::Tree& t) {
    t.exact({"x"}, 1);
    t.note("y");
    t.peak(TH_TIER_HOST, 1, TH_PH_UPDATE);
    t.digest(1);
    t.claim(TH_EXACT);
    throw th::Error(TH_E_IO, "over", "and out", 5);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_pages)

BOOST_AUTO_TEST_CASE(the_sdk_wrapper_stays_inside_each_struct) {
  both_glues<th_model>(), both_glues<th_run>(), both_glues<th_profile>(), both_glues<th_step>();
  both_glues<th_step_out>(), both_glues<th_counters>(), both_glues<th_tensor>(), both_glues<th_mem>();
  both_glues<th_mem_summary>(), both_glues<th_op_record>();
}

BOOST_AUTO_TEST_CASE(the_abi_conversion_stays_inside_each_struct) {
  trainhost::ModelSpec m;
  m.family = "llama", m.name = "x", m.config_json = "{}";
  at_every_size(tb::to_c(m), [](th_model* c) { tb::from_c(*c); });
  at_every_size(tb::to_c(trainhost::RunSpec{}), [](th_run* c) { tb::from_c(*c); });
  at_every_size(tb::to_c(trainhost::TrainerTraits{}), [](th_profile* c) { tb::from_c(*c); });
  at_every_size(th_error{}, [](th_error* e) {
    tb::write_error(e, TH_E_IO, std::string(900, 'm'), std::string(900, 'h'), 1);
  });
  at_every_size(th_error{}, [](th_error* e) { th::fill(e, TH_E_IO, std::string(900, 'm').c_str(), "h", 1); });
  trainhost::MemoryReport r;
  r.digest = 1, r.notes = {"n"}, r.tiers = {{trainhost::Tier::kHost, 1, trainhost::kUpdate}};
  at_every_size(th_mem_summary{}, [&](th_mem_summary* s) {
    tb::Collector c;
    tb::send_report(r, c.sink(), s);
  });
  tb::Collector c;
  at_every_size(*c.sink(), [&](th_mem_sink* s) {
    th_status status = TH_OK;
    try {
      tb::send_report(r, s, nullptr);
    } catch (const tb::StatusError& e) {
      status = e.code;
    }
    BOOST_REQUIRE_EQUAL(status, TH_HAS(s, th_mem_sink, node) ? TH_OK : TH_E_ARG);
  });
}

BOOST_AUTO_TEST_CASE(structs_from_a_plugin_are_not_read_past_their_size) {
  th_mem node{};
  node.id = 1, node.tier = TH_TIER_HOST, node.component = 1, node.claim = TH_EXACT,
  node.bytes = node.lo = node.hi = 1;
  at_every_size(node, [](th_mem* n) {
    tb::Collector c;
    BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), n), TH_HAS(n, th_mem, hi) ? TH_OK : TH_E_ARG);
  });
  float data[2] = {};
  th_tensor tensor{};
  tensor.dtype = TH_DT_F32, tensor.rank = 1, tensor.dim[0] = 2, tensor.name = "w", tensor.data = data,
  tensor.count = 2;
  const std::function<void(const tp::TensorPiece&)> take = [](const tp::TensorPiece&) {};
  at_every_size(tensor, [&](th_tensor* t) {
    tp::SaveSink sink(take);
    BOOST_REQUIRE_EQUAL(sink.c->tensor(sink.c.get(), t), TH_HAS(t, th_tensor, count) ? TH_OK : TH_E_ARG);
  });
  table<th_plugin>(TH_SIZE_UP_TO(th_plugin, get)), table<th_estimator>(TH_SIZE_UP_TO(th_estimator, estimate));
  table<th_trainer>(TH_SIZE_UP_TO(th_trainer, destroy)), table<th_generate>(TH_SIZE_UP_TO(th_generate, next));
  table<th_profiler>(TH_SIZE_UP_TO(th_profiler, stop)), table<th_device>(TH_SIZE_UP_TO(th_device, name));
}

BOOST_AUTO_TEST_CASE(a_plugin_with_the_sdk_wrapper_stays_inside_each_struct) {
  const th_estimator* e = th::estimator<Nothing>();
  tb::ZeroPadded<th_model> model;
  tb::ZeroPadded<th_run> run;
  th_host host{};
  at_every_size(model.value, [&](th_model* m) { e->match(m, run.get()); });
  at_every_size(run.value, [&](th_run* r) { e->match(model.get(), r); });
  at_every_size(th_mem_summary{}, [&](th_mem_summary* s) {
    tb::Collector c;
    e->estimate(&host, model.get(), run.get(), nullptr, c.sink(), s, nullptr);
  });
  at_every_size(th_error{}, [&](th_error* error) {
    tb::Collector c;
    BOOST_REQUIRE_EQUAL(e->estimate(&host, model.get(), run.get(), nullptr, c.sink(), c.summary(), error),
                        TH_E_IO);
  });
  tb::Collector whole;
  const std::size_t no_note = offsetof(th_mem_sink, note);  // the shortest that can take a node
  at_every_size(
      *whole.sink(),
      [&](th_mem_sink* s) {
        e->estimate(&host, model.get(), run.get(), nullptr, s, whole.summary(), nullptr);
      },
      no_note);
}

BOOST_AUTO_TEST_CASE(a_padded_struct_has_zeros_that_a_later_plugin_may_write) {
  tb::ZeroPadded<th_step_out> r;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&r);
  BOOST_TEST(r->struct_size == sizeof(th_step_out));
  for (std::size_t i = sizeof(std::uint32_t); i < sizeof r; ++i) BOOST_REQUIRE_EQUAL(bytes[i], 0);
  BOOST_TEST(sizeof r == sizeof(th_step_out) + tb::kPaddingBytes);
  BOOST_TEST(offsetof(tb::ZeroPadded<th_step_out>, zeros) ==
             sizeof(th_step_out));  // no padding before the zeros
}

BOOST_AUTO_TEST_SUITE_END()
