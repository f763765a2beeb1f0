// See adapt_decoder.hpp. The interface is provisional, so a plugin of another revision counts as one without
// it; its structs are then never read.
#include "core/plugin/adapt_decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/abi/convert_structs.hpp"
#include "core/abi/decode_table.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/instance_calls.hpp"

namespace trainhost::plugin {
namespace {

static_assert(sizeof(DecodeRow) == sizeof(abi::DecodeRow) &&
              offsetof(DecodeRow, wants_logits) == offsetof(abi::DecodeRow, wants_logits));

const abi::DecodeTable* table_of(const Library& library) {
  const auto* entry = static_cast<const abi::DecodeEntry*>(library.interface(abi::kDecodeId));
  if (!entry || entry->revision != abi::kDecodeRevision) return nullptr;
  const abi::DecodeTable* table = nullptr;
  call_plugin(library, "open", [&](th_error* e) { return entry->open(library.host(), &table, e); });
  return table;
}

abi::DecodeOptions options_of(const DecodeSpec& s) {
  return {static_cast<std::uint32_t>(s.weight), s.sequences, s.context, s.rows};
}

class DecoderAdapter : public Decoder {
 public:
  DecoderAdapter(std::shared_ptr<Library> library, const abi::DecodeTable& table, const ModelSpec& m,
                 const DecodeSpec& spec)
      : library_(std::move(library)), table_(table), vocab_(m.vocab) {
    const auto model = library_->fit_argument(abi::to_c(m));
    const abi::DecodeOptions options = options_of(spec);
    call_plugin(*library_, "create of the decoder", [&](th_error* e) {
      return table_.create(library_->host(), model.get(), &options, &instance_, e);
    });
    assert(instance_);
  }
  ~DecoderAdapter() override {
    calls_.close();
    table_.destroy(instance_);
  }

  void load(const TensorPiece& p) override {
    th_tensor c{};
    c.dtype = static_cast<std::uint32_t>(p.dtype), c.rank = p.rank;
    c.dim[0] = p.dim[0], c.dim[1] = p.rank >= 2 ? p.dim[1] : 0;
    c.name = p.name.c_str();
    c.data = const_cast<void*>(p.data);  // load() reads only
    c.first = p.first, c.count = p.count;
    const auto argument = library_->fit_argument(c);
    call("load", [&](th_error* e) { return table_.load(instance_, argument.get(), e); });
  }

  void forward(std::span<const DecodeRow> rows, std::span<float> logits) override {
    const auto wanted = static_cast<std::uint64_t>(
        std::count_if(rows.begin(), rows.end(), [](const DecodeRow& r) { return r.wants_logits != 0; }));
    if (logits.size() < wanted * vocab_)
      throw PluginError(
          Exit::kFailed, "argument",
          fmt::format("{} rows want logits and there is space for {} floats", wanted, logits.size()), "", 0);
    call("forward", [&](th_error* e) {
      return table_.forward(instance_, reinterpret_cast<const abi::DecodeRow*>(rows.data()),
                            static_cast<std::uint32_t>(rows.size()), logits.data(), e);
    });
  }

 private:
  template <class F>
  void call(const char* name, F&& f) {
    InstanceCalls::Scope scope(calls_, library_->id(), name);
    call_plugin(*library_, name, std::forward<F>(f));
  }

  std::shared_ptr<Library> library_;  // outlives the instance
  const abi::DecodeTable& table_;     // valid until the process ends
  const std::uint64_t vocab_;
  abi::DecodeInstance* instance_ = nullptr;
  InstanceCalls calls_;
};

}  // namespace

std::optional<DecodeMemory> decoder_memory(const Library& library, const ModelSpec& m,
                                           const DecodeSpec& spec) {
  const abi::DecodeTable* table = table_of(library);
  if (!table) return std::nullopt;
  const auto model = library.fit_argument(abi::to_c(m));
  const abi::DecodeOptions options = options_of(spec);
  abi::DecodeMemory bytes{};
  call_plugin(library, "memory of the decoder",
              [&](th_error* e) { return table->memory(library.host(), model.get(), &options, &bytes, e); });
  return DecodeMemory{bytes.weights, bytes.cache, bytes.workspace};
}

std::unique_ptr<Decoder> adapt_decoder(std::shared_ptr<Library> library, const ModelSpec& m,
                                       const DecodeSpec& spec) {
  const abi::DecodeTable* table = table_of(*library);
  if (!table) return nullptr;
  return std::make_unique<DecoderAdapter>(std::move(library), *table, m, spec);
}

}  // namespace trainhost::plugin
