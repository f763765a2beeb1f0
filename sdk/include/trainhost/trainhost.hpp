// C++17 comfort over the C headers: exceptions become codes, classes become tables, reports are built leaf by
// leaf. Header-only and hidden: no symbol of it leaves the plugin. Never needed - everything here can be
// written in C. A plugin in ten lines: sdk/README.md.
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

namespace th __attribute__((visibility("hidden"))) {

  // ---- errors -------------------------------------------------------------------------------------

  /// Throw it anywhere below a guard: the host gets the code, the sentence and the hint.
  struct Error : std::exception {
    Error(th_status c, std::string message, std::string h = {}, std::uint64_t missing_bytes = 0)
        : code(c), text(std::move(message)), hint(std::move(h)), bytes_needed(missing_bytes) {}
    /// throw th::Error(TH_E_IO, "no room for the cache").of("errno", ENOSPC): the number that a library gave.
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

  /// Throws when a call of the C interface (a sink, mostly) refused.
  inline void check(th_status s, const char* what) {
    if (s != TH_OK) throw Error(s, what);
  }

  /// The product of sizes; where it leaves 63 bits an Error(TH_E_UNSUPPORTED) instead of a wrong number.
  inline std::uint64_t product(std::initializer_list<std::uint64_t> factors) {
    std::uint64_t all = 1;
    for (std::uint64_t f : factors)
      if (__builtin_mul_overflow(all, f, &all) || all >> 63)
        throw Error(TH_E_UNSUPPORTED, "the model's sizes leave 63 bits");
    return all;
  }

  /// The sum of sizes; where it leaves 63 bits an Error(TH_E_UNSUPPORTED) instead of a wrong number.
  inline std::uint64_t sum(std::initializer_list<std::uint64_t> terms) {
    std::uint64_t all = 0;
    for (std::uint64_t t : terms)
      if (__builtin_add_overflow(all, t, &all) || all >> 63)
        throw Error(TH_E_UNSUPPORTED, "the model's sizes leave 63 bits");
    return all;
  }

  inline th_status fill(th_error * e, th_status code, const char* message, const char* hint = "",
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

  /// Runs f; nothing that it throws crosses the boundary.
  template <class F>
  th_status guard(th_error * e, F && f) noexcept {
    try {
      f();
      return TH_OK;
    } catch (const Error& x) {
      return fill(e, x.code, x.what(), x.hint.c_str(), x.bytes_needed, x.native_domain.c_str(),
                  x.native_code);
    } catch (const std::bad_alloc&) {
      return fill(e, TH_E_HOST_OOM, "out of host memory");
    } catch (const std::exception& x) {
      return fill(e, TH_E_INTERNAL, x.what());
    } catch (...) {
      return fill(e, TH_E_INTERNAL, "an exception that is no std::exception");
    }
  }

  // ---- structs of another version -----------------------------------------------------------------

  /// A full struct from one that may be shorter (its tail is zero = unset) or longer (its tail is not read).
  template <class T>
  T in(const T* from) {
    if (!from) throw Error(TH_E_ARG, "a null argument");
    T t{};
    std::memcpy(&t, from, from->struct_size < sizeof(T) ? from->struct_size : sizeof(T));
    t.struct_size = sizeof(T);
    return t;
  }

  /// Writes back what the other side has room for; its struct_size stays.
  template <class T>
  void out(T * to, const T& from) {
    std::uint32_t size = to->struct_size;
    std::memcpy(to, &from, size < sizeof(T) ? size : sizeof(T));
    to->struct_size = size;
  }

  // ---- config.json --------------------------------------------------------------------------------

  /// What a model's config.json says beyond th_model, with a default for what it does not say. Throws
  /// Error(TH_E_ARG) where something of another kind stands. Keys: trainhost/config.h. Works without the
  /// extension: all is absent then.
  class Config {
   public:
    Config(const th_host& h, const th_model& m)
        : table_(static_cast<const th_config*>(h.extension(&h, TH_CONFIG_ID))), model_(m) {}

    std::int64_t integer(const char* key, std::int64_t otherwise = 0) const {
      if (table_) said(table_->integer(table_, &model_, key, &otherwise), key, "no whole number");
      return otherwise;
    }
    double number(const char* key, double otherwise = 0) const {
      if (table_) said(table_->number(table_, &model_, key, &otherwise), key, "no number");
      return otherwise;
    }
    std::string text(const char* key, std::string otherwise = {}) const {
      std::uint64_t length = 0;
      if (!table_ || !said(table_->text(table_, &model_, key, nullptr, 0, &length), key, "no text"))
        return otherwise;
      otherwise.assign(length + 1, '\0');
      table_->text(table_, &model_, key, &otherwise[0], otherwise.size(), nullptr);
      otherwise.pop_back();
      return otherwise;
    }
    /// Items of an array, members of an object.
    std::uint64_t count(const char* key, std::uint64_t otherwise = 0) const {
      if (table_) said(table_->count(table_, &model_, key, &otherwise), key, "no list");
      return otherwise;
    }

   private:
    static bool said(th_status s, const char* key, const char* what) {
      if (s == TH_OK || s == TH_E_ABSENT) return s == TH_OK;
      throw Error(s, std::string("config.json: ") + key + " is " + what);
    }
    const th_config* table_;
    const th_model& model_;
  };

  // ---- memory reports -----------------------------------------------------------------------------

  /// What a leaf says besides its size. Designated by position: {name, tier, component, phases, formula}.
  struct Leaf {
    const char* name;
    std::uint32_t tier = TH_TIER_HOST, component = TH_MEM_WORKSPACE, phases = 0; /* 0 = always there */
    const char* formula = nullptr;
    std::uint32_t parent = 0;
  };

  /// Builds a report; ids are given out in order. Throws Error when the host refuses a node.
  class Tree {
   public:
    Tree(th_mem_sink* sink, th_mem_summary* summary) : sink_(sink), summary_(summary) {
      if (!sink || !summary) throw Error(TH_E_ARG, "nowhere to put the report: a null argument");
    }

    std::uint32_t exact(const Leaf& l, std::uint64_t bytes) { return send(l, TH_EXACT, bytes, bytes, bytes); }
    std::uint32_t upper_bound(const Leaf& l, std::uint64_t bytes) {
      return send(l, TH_UPPER_BOUND, bytes, 0, bytes);
    }
    std::uint32_t approximation(const Leaf& l, std::uint64_t bytes, std::uint64_t lo, std::uint64_t hi) {
      return send(l, TH_APPROXIMATION, bytes, lo, hi);
    }
    /// A sentence for the user.
    void note(const std::string& sentence) {
      if (TH_HAS(sink_, th_mem_sink, note) && sink_->note)
        check(sink_->note(sink_, sentence.c_str()), "the host refused a note");
    }
    /// The worst moment of a tier; without it the host adds up the leaves.
    void peak(std::uint32_t tier, std::uint64_t bytes, std::uint32_t phase) {
      if (tier == 0 || tier >= TH_TIER_SLOTS)
        throw Error(TH_E_INTERNAL, "the peak of a tier that does not exist");
      if (TH_HAS(summary_, th_mem_summary, tier_peak)) summary_->tier_peak[tier] = bytes;
      if (TH_HAS(summary_, th_mem_summary, peak_phase)) summary_->peak_phase[tier] = phase;
    }
    void claim(std::uint32_t c) {
      if (TH_HAS(summary_, th_mem_summary, claim)) summary_->claim = c;
    }
    void digest(std::uint64_t d) {
      if (TH_HAS(summary_, th_mem_summary, digest)) summary_->digest = d;
    }

   private:
    std::uint32_t send(const Leaf& l, std::uint32_t claim, std::uint64_t bytes, std::uint64_t lo,
                       std::uint64_t hi) {
      th_mem m{};
      m.struct_size = sizeof m;
      m.id = ++count_;
      m.parent = l.parent;
      m.tier = l.tier;
      m.component = l.component;
      m.claim = claim;
      m.phases = l.phases;
      m.bytes = bytes;
      m.lo = lo;
      m.hi = hi;
      m.name = l.name;
      m.formula = l.formula;
      check(sink_->node(sink_, &m), "the host refused a memory node");
      return count_;
    }
    th_mem_sink* sink_;
    th_mem_summary* summary_;
    std::uint32_t count_ = 0;
  };

  // ---- interfaces ---------------------------------------------------------------------------------

  /// The table of an estimator class with two static functions:
  ///   int match(const th_model&, const th_run&) noexcept;
  ///   void estimate(const th_host&, const th_model&, const th_run&, const th_profile*, th::Tree&);
  template <class E>
  const th_estimator* estimator() noexcept {
    static_assert(noexcept(E::match(std::declval<const th_model&>(), std::declval<const th_run&>())),
                  "match() must be noexcept");
    static constexpr th_estimator table{
        sizeof(th_estimator), 0,
        [](const th_model* m, const th_run* r) -> std::int32_t {
          return m && r ? E::match(in(m), in(r)) : 0;
        },
        [](const th_host* h, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
           th_mem_summary* summary, th_error* e) {
          return guard(e, [&] {
            if (!h || !m || !r || !sink) throw Error(TH_E_ARG, "host, model, run or sink is null");
            th_profile full = p ? in(p) : th_profile{};
            Tree tree(sink, summary);
            E::estimate(*h, in(m), in(r), p ? &full : nullptr, tree);
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

  /// The table of a trainer class. Static: probe, profile, plan; one object is one training run:
  ///   static std::uint32_t probe(const th_host&);                              throws
  ///   Error(TH_E_UNAVAILABLE, why) static void profile(const th_host&, const th_model&, const th_run&,
  ///   th_profile&); static void plan(const th_host&, const th_model&, const th_run&, th::Tree&); T(const
  ///   th_host&, std::int32_t device, const th_model&, const th_run&);  the host outlives the object void
  ///   load(std::uint32_t scope, const th_tensor&);   void init(std::uint64_t seed); void step(const
  ///   th_step&, th_step_out&);            void save(std::uint32_t scope, th_tensor_sink&); optional: void
  ///   counters(th_counters&); const char* info(const char*) noexcept; double metric(const char*);
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
            if (!h || !devices) throw Error(TH_E_ARG, "host or number of devices is null");
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
            throw Error(TH_E_UNSUPPORTED, std::string("no figure named ") + key);
          });
        },
        [](th_trainer_inst* i) { delete reinterpret_cast<T*>(i); }};
    return &table;
  }

  /// The table of a trainer class that also has  void next(std::int32_t token, std::uint32_t position, float*
  /// logits).
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

  /// The table of a trainer class that also has two static functions about its devices; both throw Error:
  ///   void memory(const th_host&, std::int32_t device, std::uint64_t& free_bytes, std::uint64_t&
  ///   total_bytes); std::string device_name(const th_host&, std::int32_t device);
  template <class T>
  const th_device* device() noexcept {
    static constexpr th_device table{
        sizeof(th_device), 0,
        [](const th_host* h, std::int32_t d, std::uint64_t* free_bytes, std::uint64_t* total_bytes,
           th_error* e) {
          return guard(e, [&] {
            if (!h || !free_bytes || !total_bytes) throw Error(TH_E_ARG, "host or a number of bytes is null");
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

  /// The table whose interface id is asked for; nullptr when it is none of them.
  template <class... Table>
  const void* pick(const char* interface_id, const Table*... tables) noexcept {
    const void* found = nullptr;
    ((found = std::strcmp(interface_id, id_of(tables)) == 0 ? static_cast<const void*>(tables) : found), ...);
    return found;
  }

}  // namespace )

/// TH_PLUGIN("acme-mamba", "1.2.0", th::estimator<Mine>()): the one exported symbol. id and version as in the
/// manifest.
#define TH_PLUGIN(plugin_id, plugin_version, ...)                  \
  extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) {           \
    static const th_plugin plugin{                                 \
        sizeof(th_plugin), TH_ABI_MAJOR,                           \
        TH_ABI_MINOR,      plugin_id,                              \
        plugin_version,    nullptr,                                \
        nullptr,           [](const char* id) -> const void* { return th::pick(id, __VA_ARGS__); }}; \
    return &plugin;                                                \
  }
