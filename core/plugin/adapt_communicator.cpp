// See adapt.hpp. The adapter of communicators, and the table by which trainers reach one.
#include <fmt/format.h>

#include <cassert>
#include <cstdlib>
#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/known_fields.hpp"
#include "trainhost/communicator.h"

namespace trainhost::plugin {
namespace {

constexpr std::uint32_t kMostRanks = 1u << 20;

/// What a plugin says of the process; the text is bounded.
Launch launch_from(const th_launch& c, const std::string& id) {
  if (c.ranks == 0 || c.ranks > kMostRanks || c.rank >= c.ranks)
    throw PluginError(Exit::kFailed, "internal",
                      fmt::format("plugin {} reported rank {} of {}", id, c.rank, c.ranks),
                      "a bug in the plugin: report it to its author", 0);
  return {c.rank, c.ranks, c.local_rank, c.local_ranks,
          escaped({c.launcher, ::strnlen(c.launcher, sizeof c.launcher)}, sizeof c.launcher)};
}

class CommunicatorAdapter final : public Communicator {
 public:
  CommunicatorAdapter(std::shared_ptr<Library> library, const th_communicator& table,
                      th_communicator_inst* instance, Launch launch)
      : library_(std::move(library)), table_(table), instance_(instance), launch_(std::move(launch)) {}
  ~CommunicatorAdapter() override {
    try {
      table_.destroy(instance_);
    } catch (...) {  // destroy() cannot fail; an exception here has nowhere to be reported
    }
  }
  const Launch& launch() const override { return launch_; }
  std::uint32_t rank() const override { return launch_.rank; }
  std::uint32_t ranks() const override { return launch_.ranks; }

  std::uint64_t start(const Collective& c) override {
    th_collective out{};
    out.struct_size = sizeof out;
    out.kind = static_cast<std::uint32_t>(c.kind), out.dtype = static_cast<std::uint32_t>(c.dtype);
    out.reduction = static_cast<std::uint32_t>(c.reduction), out.root = c.root;
    out.data = c.data, out.count = c.count, out.piece = c.piece;
    out.scratch = c.scratch, out.scratch_bytes = c.scratch_bytes;
    out.width = c.group.width, out.stride = c.group.stride;
    auto argument = library_->fit_argument(out);
    std::uint64_t ticket = 0;
    call_plugin(*library_, "start",
                [&](th_error* e) { return table_.start(instance_, argument.get(), &ticket, e); });
    return ticket;
  }
  void wait(std::uint64_t ticket) override {
    call_plugin(*library_, "wait", [&](th_error* e) { return table_.wait(instance_, ticket, e); });
  }
  [[noreturn]] void abort(Exit code) override {
    table_.abort(instance_, static_cast<std::int32_t>(code));
    std::_Exit(static_cast<int>(code));  // a plugin that returns
  }

 private:
  std::shared_ptr<Library> library_;
  th_communicator table_;
  th_communicator_inst* instance_;
  Launch launch_;
};

class PluginAdapter final : public CommunicatorPlugin {
 public:
  PluginAdapter(std::shared_ptr<Library> library, const th_communicator& table)
      : library_(std::move(library)), table_(table) {}
  const std::string& id() const override { return library_->id(); }

  Launch probe() override {
    auto out = library_->make_result<th_launch>();
    call_plugin(*library_, "probe",
                [&](th_error* e) { return table_.probe(library_->host(), out.get(), e); });
    return launch_from(out.value, id());
  }
  std::unique_ptr<Communicator> connect(std::uint64_t timeout_ms) override {
    auto out = library_->make_result<th_launch>();
    th_communicator_inst* instance = nullptr;
    call_plugin(*library_, "create", [&](th_error* e) {
      return table_.create(library_->host(), timeout_ms, &instance, out.get(), e);
    });
    if (!instance)
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} returned no instance from create()", id()),
                        "a bug in the plugin: report it to its author", 0);
    return std::make_unique<CommunicatorAdapter>(library_, table_, instance, launch_from(out.value, id()));
  }

 private:
  std::shared_ptr<Library> library_;
  th_communicator table_;
};

}  // namespace

std::unique_ptr<CommunicatorPlugin> adapt_communicator(std::shared_ptr<Library> library) {
  const void* raw = library->interface(TH_COMMUNICATOR_ID);
  if (!raw)
    throw Rejection("abi", "no_interface",
                    fmt::format("it is of kind communicator but does not provide {}", TH_COMMUNICATOR_ID),
                    "return its table from get(), or change the kind in the manifest");
  const auto t = copy_known_fields<th_communicator>(raw, TH_SIZE_UP_TO(th_communicator, destroy),
                                                    TH_COMMUNICATOR_ID " table");
  const auto need = [](auto* function, const char* slot) {
    require_slot(reinterpret_cast<const void*>(function), TH_COMMUNICATOR_ID, slot);
  };
  need(t.probe, "probe"), need(t.create, "create"), need(t.start, "start");
  need(t.wait, "wait"), need(t.abort, "abort"), need(t.destroy, "destroy");
  return std::make_unique<PluginAdapter>(std::move(library), t);
}

}  // namespace trainhost::plugin
