// Optional C++17 layer over the C headers: it turns exceptions into codes and classes into function tables,
// and builds memory reports. Header-only with hidden visibility: the plugin exports no symbol of it. A plugin
// can also be written without it, in C. The smallest plugin that uses it: sdk/README.md.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "trainhost/trainhost.h"

namespace [[gnu::visibility("hidden")]] th {

// ---- errors -------------------------------------------------------------------------------------

/// Thrown by code that runs inside guard(): the host receives code, message and hint.
struct Error : std::exception {
  Error(th_status c, std::string message, std::string h = {}, std::uint64_t missing_bytes = 0)
      : code(c), text(std::move(message)), hint(std::move(h)), bytes_needed(missing_bytes) {}
  /// Adds the code of a vendor library: throw th::Error(TH_E_IO, "cannot write FILE").of("errno", ENOSPC);
  Error& of(std::string domain, std::int32_t number) {
    native_domain = std::move(domain), native_code = number;
    return *this;
  }
  const char* what() const noexcept override { return text.c_str(); }
  th_status code;
  std::string text, hint, native_domain;
  std::uint64_t bytes_needed;
  std::int32_t native_code = 0;
};

/// Throws Error(s, what) if a call of the C interface, mostly of a sink, did not return TH_OK.
inline void check(th_status s, const char* what) {
  if (s != TH_OK) throw Error(s, what);
}

/// Product of sizes. Throws Error(TH_E_UNSUPPORTED) if it exceeds 63 bits.
inline std::uint64_t product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t all = 1;
  for (std::uint64_t f : factors)
    if (__builtin_mul_overflow(all, f, &all) || all >> 63)
      throw Error(TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  return all;
}

/// Sum of sizes. Throws Error(TH_E_UNSUPPORTED) if it exceeds 63 bits.
inline std::uint64_t sum(std::initializer_list<std::uint64_t> terms) {
  std::uint64_t all = 0;
  for (std::uint64_t t : terms)
    if (__builtin_add_overflow(all, t, &all) || all >> 63)
      throw Error(TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  return all;
}

/// Writes code, texts and numbers to *e (which may be null), as far as its struct_size reaches; returns code.
inline th_status fill(th_error* e, th_status code, const char* message, const char* hint = "",
                      std::uint64_t bytes_needed = 0, const char* native_domain = "",
                      std::int32_t native_code = 0) noexcept {
  if (!e) return code;
  if (TH_HAS(e, th_error, code)) e->code = code;
  if (TH_HAS(e, th_error, native_code)) e->native_code = native_code;
  if (TH_HAS(e, th_error, bytes_needed)) e->bytes_needed = bytes_needed;
  if (TH_HAS(e, th_error, native_domain))
    std::snprintf(e->native_domain, sizeof e->native_domain, "%s", native_domain);
  if (TH_HAS(e, th_error, message)) std::snprintf(e->message, sizeof e->message, "%s", message);
  if (TH_HAS(e, th_error, hint)) std::snprintf(e->hint, sizeof e->hint, "%s", hint);
  return code;
}

/// Runs f and returns TH_OK, or fills *e from the exception that f threw and returns its code.
template <class F>
th_status guard(th_error* e, F&& f) noexcept {
  try {
    f();
    return TH_OK;
  } catch (const Error& x) {
    return fill(e, x.code, x.what(), x.hint.c_str(), x.bytes_needed, x.native_domain.c_str(), x.native_code);
  } catch (const std::bad_alloc&) {
    return fill(e, TH_E_HOST_OOM, "out of host memory");
  } catch (const std::exception& x) {
    return fill(e, TH_E_INTERNAL, x.what());
  } catch (...) {
    return fill(e, TH_E_INTERNAL, "an exception that is not a std::exception");
  }
}

// ---- structs of another version -----------------------------------------------------------------

/// Copy of a struct that may be shorter (missing fields become 0 = unset) or longer (extra fields are
/// ignored).
template <class T>
T in(const T* from) {
  if (!from) throw Error(TH_E_ARG, "an argument is null");
  T t{};
  std::memcpy(&t, from, from->struct_size < sizeof(T) ? from->struct_size : sizeof(T));
  t.struct_size = sizeof(T);
  return t;
}

/// Copies as many bytes of `from` as to->struct_size allows; to->struct_size does not change.
template <class T>
void out(T* to, const T& from) {
  std::uint32_t size = to->struct_size;
  std::memcpy(to, &from, size < sizeof(T) ? size : sizeof(T));
  to->struct_size = size;
}

// ---- config.json --------------------------------------------------------------------------------

/// Reads keys of the model's config.json (trainhost/config.h explains keys); returns `otherwise` if a key is
/// missing. Throws Error(TH_E_ARG) if a value has another type. If the host lacks the extension, every key is
/// missing.
class Config {
 public:
  Config(const th_host& h, const th_model& m)
      : table_(static_cast<const th_config*>(h.extension(&h, TH_CONFIG_ID))), model_(m) {}

  std::int64_t integer(const char* key, std::int64_t otherwise = 0) const {
    if (table_) found(table_->integer(table_, &model_, key, &otherwise), key, "not an integer");
    return otherwise;
  }
  double number(const char* key, double otherwise = 0) const {
    if (table_) found(table_->number(table_, &model_, key, &otherwise), key, "not a number");
    return otherwise;
  }
  std::string text(const char* key, std::string otherwise = {}) const {
    std::uint64_t length = 0;
    if (!table_ || !found(table_->text(table_, &model_, key, nullptr, 0, &length), key, "not a string"))
      return otherwise;
    otherwise.assign(length + 1, '\0');
    table_->text(table_, &model_, key, &otherwise[0], otherwise.size(), nullptr);
    otherwise.pop_back();
    return otherwise;
  }
  /// Number of items of an array or members of an object.
  std::uint64_t count(const char* key, std::uint64_t otherwise = 0) const {
    if (table_) found(table_->count(table_, &model_, key, &otherwise), key, "neither an array nor an object");
    return otherwise;
  }

 private:
  /// Whether the key exists. Throws for every other failure.
  static bool found(th_status s, const char* key, const char* what) {
    if (s == TH_OK || s == TH_E_ABSENT) return s == TH_OK;
    throw Error(s, std::string("config.json: ") + key + " is " + what);
  }
  const th_config* table_;
  const th_model& model_;
};

// ---- memory reports -----------------------------------------------------------------------------

/// Description of a memory entry: {name, tier, component, phases, formula, parent}.
struct Entry {
  const char* name;
  std::uint32_t tier = TH_TIER_HOST, component = TH_MEM_WORKSPACE, phases = 0; /* 0 = always live */
  const char* formula = nullptr;
  std::uint32_t parent = 0; /* id that a function of Tree returned; 0 = root */
};
using Leaf = Entry;  // former name

/// Builds a memory report. Functions that add an entry return its id, which may become the parent of later
/// entries. They throw Error if the host rejects the entry.
class Tree {
 public:
  Tree(th_mem_sink* sink, th_mem_summary* summary) : sink_(sink), summary_(summary) {
    if (!sink || !summary) throw Error(TH_E_ARG, "sink or summary is null");
  }

  std::uint32_t exact(const Entry& entry, std::uint64_t bytes) {
    return send(entry, TH_EXACT, bytes, bytes, bytes);
  }
  std::uint32_t upper_bound(const Entry& entry, std::uint64_t bytes) {
    return send(entry, TH_UPPER_BOUND, bytes, 0, bytes);
  }
  std::uint32_t approximation(const Entry& entry, std::uint64_t bytes, std::uint64_t lo, std::uint64_t hi) {
    return send(entry, TH_APPROXIMATION, bytes, lo, hi);
  }
  /// Adds a sentence for the user.
  void note(const std::string& sentence) {
    if (TH_HAS(sink_, th_mem_sink, note) && sink_->note)
      check(sink_->note(sink_, sentence.c_str()), "the host rejected a note");
  }
  /// Sets the peak of a tier and its phase; without this call the host computes them from the entries.
  void peak(std::uint32_t tier, std::uint64_t bytes, std::uint32_t phase) {
    if (tier == 0 || tier >= TH_TIER_SLOTS)
      throw Error(TH_E_INTERNAL, "peak() was called with a tier that does not exist");
    if (TH_HAS(summary_, th_mem_summary, tier_peak)) summary_->tier_peak[tier] = bytes;
    if (TH_HAS(summary_, th_mem_summary, peak_phase)) summary_->peak_phase[tier] = phase;
  }
  /// Sets the kind of the total: TH_EXACT, TH_UPPER_BOUND or TH_APPROXIMATION.
  void claim(std::uint32_t c) {
    if (TH_HAS(summary_, th_mem_summary, claim)) summary_->claim = c;
  }
  /// Sets the digest of the plan; equal digests mean equal plans.
  void digest(std::uint64_t d) {
    if (TH_HAS(summary_, th_mem_summary, digest)) summary_->digest = d;
  }

 private:
  std::uint32_t send(const Entry& entry, std::uint32_t claim, std::uint64_t bytes, std::uint64_t lo,
                     std::uint64_t hi) {
    th_mem m{};
    m.struct_size = sizeof m;
    m.id = ++count_;
    m.parent = entry.parent;
    m.tier = entry.tier;
    m.component = entry.component;
    m.claim = claim;
    m.phases = entry.phases;
    m.bytes = bytes;
    m.lo = lo;
    m.hi = hi;
    m.name = entry.name;
    m.formula = entry.formula;
    check(sink_->node(sink_, &m), "the host rejected a memory node");
    return count_;
  }
  th_mem_sink* sink_;
  th_mem_summary* summary_;
  std::uint32_t count_ = 0;
};

// ---- interfaces ---------------------------------------------------------------------------------

/// Table of an estimator class E with two static functions:
///   int match(const th_model&, const th_run&) noexcept;
///   void estimate(const th_host&, const th_model&, const th_run&, const th_profile*, th::Tree&);
template <class E>
const th_estimator* estimator() noexcept {
  static_assert(noexcept(E::match(std::declval<const th_model&>(), std::declval<const th_run&>())),
                "match() must be noexcept");
  static constexpr th_estimator table{
      sizeof(th_estimator), 0,
      [](const th_model* m, const th_run* r) -> std::int32_t { return m && r ? E::match(in(m), in(r)) : 0; },
      [](const th_host* h, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
         th_mem_summary* summary, th_error* e) {
        return guard(e, [&] {
          if (!h || !m || !r || !sink) throw Error(TH_E_ARG, "host, model, run or sink is null");
          th_profile full = p ? in(p) : th_profile{};
          Tree tree(sink, summary);
          E::estimate(*h, in(m), in(r), p ? &full : nullptr, tree);
          // A run file can name an estimator that does not match the model. After estimate(), whose own error
          // says more; the host drops the report.
          if (E::match(in(m), in(r)) == 0)
            throw Error(TH_E_UNSUPPORTED, "the estimator does not cover this model and run");
        });
      }};
  return &table;
}

template <class T, class = void>
struct has_counters : std::false_type {};
template <class T>
struct has_counters<T, std::void_t<decltype(std::declval<T&>().counters(std::declval<th_counters&>()))>>
    : std::true_type {};
template <class T, class = void>
struct has_info : std::false_type {};
template <class T>
struct has_info<T, std::void_t<decltype(std::declval<T&>().info(""))>> : std::true_type {};
template <class T, class = void>
struct has_metric : std::false_type {};
template <class T>
struct has_metric<T, std::void_t<decltype(std::declval<T&>().metric(""))>> : std::true_type {};

/// Table of a trainer class T. One object of T is one training run. Every function may throw, except info().
/// Static functions:
///   static std::uint32_t probe(const th_host&);   throws Error(TH_E_UNAVAILABLE, reason) if there is no
///   device static void profile(const th_host&, const th_model&, const th_run&, th_profile&); static void
///   plan(const th_host&, const th_model&, const th_run&, th::Tree&);
/// Constructor, which allocates all memory of the run; the host outlives the object:
///   T(const th_host&, std::int32_t device, const th_model&, const th_run&);
/// Member functions:
///   void load(std::uint32_t scope, const th_tensor&);
///   void init(std::uint64_t seed);
///   void step(const th_step&, th_step_out&);
///   void save(std::uint32_t scope, th_tensor_sink&);
/// Optional member functions:
///   void counters(th_counters&);
///   const char* info(const char* key) noexcept;
///   double metric(const char* key);
template <class T>
const th_trainer* trainer() noexcept {
  static constexpr auto self = [](th_trainer_inst* i) -> T& {
    if (!i) throw Error(TH_E_ARG, "the instance is null");
    return *reinterpret_cast<T*>(i);
  };
  static constexpr th_trainer table{
      sizeof(th_trainer),
      0,
      [](const th_host* h, std::uint32_t* devices, th_error* e) {
        return guard(e, [&] {
          if (!h || !devices) throw Error(TH_E_ARG, "host or devices is null");
          *devices = T::probe(*h);
        });
      },
      [](const th_host* h, const th_model* m, const th_run* r, th_profile* p, th_error* e) {
        return guard(e, [&] {
          if (!h || !m || !r || !p) throw Error(TH_E_ARG, "host, model, run or profile is null");
          th_profile full{};
          full.struct_size = sizeof full;
          T::profile(*h, in(m), in(r), full);
          out(p, full);
        });
      },
      [](const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink, th_mem_summary* summary,
         th_error* e) {
        return guard(e, [&] {
          if (!h || !m || !r || !sink) throw Error(TH_E_ARG, "host, model, run or sink is null");
          Tree tree(sink, summary);
          T::plan(*h, in(m), in(r), tree);
        });
      },
      [](const th_host* h, std::int32_t device, const th_model* m, const th_run* r, th_trainer_inst** inst,
         th_error* e) {
        return guard(e, [&] {
          if (!h || !inst) throw Error(TH_E_ARG, "host or instance is null");
          *inst = nullptr;
          *inst = reinterpret_cast<th_trainer_inst*>(new T(*h, device, in(m), in(r)));
        });
      },
      [](th_trainer_inst* i, std::uint32_t scope, const th_tensor* t, th_error* e) {
        return guard(e, [&] { self(i).load(scope, in(t)); });
      },
      [](th_trainer_inst* i, std::uint64_t seed, th_error* e) {
        return guard(e, [&] { self(i).init(seed); });
      },
      [](th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) {
        return guard(e, [&] {
          if (!o) throw Error(TH_E_ARG, "the result is null");
          th_step_out full{};
          full.struct_size = sizeof full;
          self(i).step(in(s), full);
          out(o, full);
        });
      },
      [](th_trainer_inst* i, std::uint32_t scope, th_tensor_sink* sink, th_error* e) {
        return guard(e, [&] {
          if (!sink) throw Error(TH_E_ARG, "the sink is null");
          self(i).save(scope, *sink);
        });
      },
      [](th_trainer_inst* i, th_counters* c, th_error* e) {
        return guard(e, [&] {
          if (!i || !c) throw Error(TH_E_ARG, "instance or counters are null");
          th_counters full{};
          full.struct_size = sizeof full;
          if constexpr (has_counters<T>::value) self(i).counters(full);
          (void)i;
          out(c, full);
        });
      },
      [](th_trainer_inst* i, const char* key) -> const char* {
        if constexpr (has_info<T>::value) return i && key ? self(i).info(key) : nullptr;
        (void)i, (void)key;
        return nullptr;
      },
      [](th_trainer_inst* i, const char* key, double* value, th_error* e) {
        return guard(e, [&] {
          if (!i || !key || !value) throw Error(TH_E_ARG, "instance, key or value is null");
          if constexpr (has_metric<T>::value) return void(*value = self(i).metric(key));
          (void)i, (void)value;
          throw Error(TH_E_UNSUPPORTED, std::string("unknown metric ") + key);
        });
      },
      [](th_trainer_inst* i) { delete reinterpret_cast<T*>(i); }};
  return &table;
}

/// Table of a trainer class that also generates:
///   void next(std::int32_t token, std::uint32_t position, float* logits);
template <class T>
const th_generate* generate() noexcept {
  static constexpr th_generate table{
      sizeof(th_generate), 0,
      [](th_trainer_inst* i, std::int32_t token, std::uint32_t position, float* logits, th_error* e) {
        return guard(e, [&] {
          if (!i || !logits) throw Error(TH_E_ARG, "instance or logits are null");
          reinterpret_cast<T*>(i)->next(token, position, logits);
        });
      }};
  return &table;
}

/// Table of a trainer class with two static functions that describe its devices. Both throw Error:
///   static void memory(const th_host&, std::int32_t device, std::uint64_t& free_bytes,
///                      std::uint64_t& total_bytes);
///   static std::string device_name(const th_host&, std::int32_t device);
template <class T>
const th_device* device() noexcept {
  static constexpr th_device table{
      sizeof(th_device), 0,
      [](const th_host* h, std::int32_t d, std::uint64_t* free_bytes, std::uint64_t* total_bytes,
         th_error* e) {
        return guard(e, [&] {
          if (!h || !free_bytes || !total_bytes)
            throw Error(TH_E_ARG, "host, free_bytes or total_bytes is null");
          T::memory(*h, d, *free_bytes, *total_bytes);
        });
      },
      [](const th_host* h, std::int32_t d, char* text, std::uint32_t text_bytes, th_error* e) {
        return guard(e, [&] {
          if (!h || (!text && text_bytes)) throw Error(TH_E_ARG, "host or text is null");
          std::snprintf(text, text_bytes, "%s", T::device_name(*h, d).c_str());
        });
      }};
  return &table;
}

// ---- the entry ----------------------------------------------------------------------------------

inline const char* id_of(const th_estimator*) noexcept { return TH_ESTIMATOR_ID; }
inline const char* id_of(const th_trainer*) noexcept { return TH_TRAINER_ID; }
inline const char* id_of(const th_generate*) noexcept { return TH_GENERATE_ID; }
inline const char* id_of(const th_profiler*) noexcept { return TH_PROFILER_ID; }
inline const char* id_of(const th_device*) noexcept { return TH_DEVICE_ID; }

/// Returns the table with this interface id, or nullptr if none of them has it.
template <class... Table>
const void* pick(const char* interface_id, const Table*... tables) noexcept {
  const void* found = nullptr;
  ((found = std::strcmp(interface_id, id_of(tables)) == 0 ? static_cast<const void*>(tables) : found), ...);
  return found;
}

// clang-format off
}  // namespace th

/// Defines the entry point, the only exported symbol. id and version are those of the manifest. Example:
///   TH_PLUGIN("acme-mamba", "1.2.0", th::estimator<Mine>())
#define TH_PLUGIN(plugin_id, plugin_version, ...)                                                   \
  extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) {                                            \
    static const th_plugin plugin{                                                                  \
        sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, plugin_id, plugin_version, nullptr, nullptr, \
        [](const char* id) -> const void* { return th::pick(id, __VA_ARGS__); }};                   \
    return &plugin;                                                                                 \
  }
// clang-format on
