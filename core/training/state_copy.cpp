// See state_copy.hpp. The copy holds, for each scope, all tensors one after the other in checkpoint order.
#include "core/training/state_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/model/adapters.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::training {
namespace {

/// Calls `f` with the scope's index and each piece that the session saves.
template <class F>
void each_piece(plugin::Session& s, const runfile::RunConfig& c, F&& f) {
  const std::span<const plugin::Scope> scopes = state_scopes(c);
  for (std::size_t i = 0; i < scopes.size(); ++i)
    state_of(s, c)(i)([&](std::string_view name, std::uint64_t first, std::span<const float> values) {
      f(i, name, first, values);
    });
}

}  // namespace

StateCopy::StateCopy(plugin::Ledger& ledger, const runfile::RunConfig& c)
    : config_(c), block_(ledger, planning::state_copy_bytes(c), "host.state_copy") {
  // A piece is found by name and range, because a trainer may save tensors in any order and in any pieces.
  std::uint64_t first = 0;
  const std::size_t scopes = planning::copies_own_part(c) ? 0 : state_scopes(c).size();
  for (std::size_t scope = 0; scope < scopes; ++scope) {
    ScopeCopy& s = scopes_.emplace_back();
    s.tensors = state_tensors(c, scope);
    for (std::size_t i = 0; i < s.tensors.size(); ++i) {
      s.index[s.tensors[i].name] = i;
      s.first.push_back(first);
      first += s.tensors[i].elements();
    }
  }
  // Touches every page now: the first save would wait for them, and a machine without the memory ends the run
  // at its start.
  std::ranges::fill(block_.as<float>(), 0.0f);
  assert(scopes == 0 || checked_mul(first, sizeof(float)) == planning::state_copy_bytes(c));
}

std::span<float> StateCopy::values(std::size_t scope, std::size_t tensor) const {
  const ScopeCopy& s = scopes_[scope];
  return block_.as<float>().subspan(s.first[tensor], s.tensors[tensor].elements());
}

void StateCopy::take(plugin::Session& s) {
  each_piece(
      s, config_,
      [&](std::size_t scope, std::string_view name, std::uint64_t first, std::span<const float> piece) {
        const ScopeCopy& copy = scopes_[scope];
        const auto i = copy.index.find(std::string(name));
        if (i == copy.index.end() || first + piece.size() > copy.tensors[i->second].elements())
          throw run_error(
              fmt::format("the trainer saved '{}', elements {} to {}, which the model does not have", name,
                          first, first + piece.size()));
        std::copy(piece.begin(), piece.end(), values(scope, i->second).begin() + std::ptrdiff_t(first));
      });
}

void StateCopy::restore(plugin::Session& s) const {
  const std::span<const plugin::Scope> scopes = state_scopes(config_);
  for (std::size_t scope = 0; scope < scopes.size(); ++scope)
    for (std::size_t i = 0; i < scopes_[scope].tensors.size(); ++i) {
      // Whole tensors: the copy is contiguous, whatever pieces the trainer saved.
      const TensorInfo& t = scopes_[scope].tensors[i];
      const std::span<float> all = values(scope, i);
      s.load(scopes[scope], {t.name, DType::kF32, t.rank, t.dim, all.data(), 0, all.size()});
    }
}

checkpoint::TensorSource StateCopy::source(std::size_t scope) const {
  return [this, scope](const checkpoint::TensorSink& sink) {
    const std::vector<TensorInfo>& tensors = scopes_[scope].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) sink(tensors[i].name, 0, values(scope, i));
  };
}

void StateCopy::take_own_part(plugin::Session& s) {
  const PartStateSource state = own_state_of(s, config_);
  const std::span<float> all = block_.as<float>();
  std::uint64_t at = 0;
  own_.clear();
  for (std::size_t scope = 0; scope < state_scopes(config_).size(); ++scope) {
    own_.emplace_back();
    const std::vector<TensorInfo> tensors = state_tensors(config_, scope);
    state(scope, tensors)([&](const TensorInfo& whole, const TensorPart& part, std::uint64_t first,
                              std::span<const float> values) {
      if (values.size() > all.size() - at)
        throw run_error("the trainer saved more than the part of '" + whole.name +
                        "' that this rank has to write");
      std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(at));
      own_.back().push_back({whole.name, part, first, values.size(), at});
      at += values.size();
    });
  }
}

PartStateSource StateCopy::own_part() const {
  return [this](std::size_t scope, const std::vector<TensorInfo>& tensors) {
    return [this, scope, &tensors](const checkpoint::PartSink& sink) {
      auto whole = tensors.begin();  // pieces have the order of the tensors
      for (const OwnPiece& p : own_[scope]) {
        whole = std::find_if(whole, tensors.end(), [&](const TensorInfo& t) { return t.name == p.name; });
        if (whole == tensors.end()) throw run_error("the trainer saved '" + p.name + "' out of order");
        sink(*whole, p.part, p.first, block_.as<float>().subspan(p.at, p.count));
      }
    };
  };
}

std::string StateHash::first_difference(const StateHash& other) const {
  assert(tensors.size() == other.tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].hash != other.tensors[i].hash) return tensors[i].name;
  return {};
}

StateHash hash_state(plugin::Session& s, const runfile::RunConfig& c) {
  static constexpr const char* kWhat[] = {"weights", "first moment", "second moment"};
  StateHash out;
  checkpoint::Xxh3 hash;
  std::string current;
  const auto end_tensor = [&] {
    // The pieces of a tensor arrive one after the other, so a new name ends the tensor before it.
    if (!current.empty()) out.tensors.push_back({std::move(current), hash.hex()});
    current.clear();
    hash.reset();
  };
  std::string of_weights;
  each_piece(s, c,
             [&](std::size_t scope, std::string_view name, std::uint64_t, std::span<const float> piece) {
               // Scope and name: the moments of a weight have its name.
               std::string label = fmt::format("{} of {}", kWhat[scope], name);
               if (label != current) end_tensor(), current = std::move(label);
               hash.update(std::as_bytes(piece));
             });
  end_tensor();
  for (const StateHash::Tensor& t : out.tensors)
    // The hash that a run reports as verified is of its model, hence of the weights alone.
    if (t.name.starts_with("weights")) of_weights += t.hash;
  out.weights = checkpoint::xxh3_hex(of_weights);
  return out;
}

}  // namespace trainhost::training
