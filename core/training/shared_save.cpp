// See shared_save.hpp. Every step that can fail on one rank is one of Ranks::together(), so that no rank
// waits for another one that has given up.
#include "core/training/shared_save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <sstream>
#include <unordered_map>

#include "core/base/text.hpp"
#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;
namespace {

std::string text_of(const std::vector<checkpoint::FileRecord>& files) {
  std::string text;
  for (const checkpoint::FileRecord& f : files) text += fmt::format("{} {} {}\n", f.name, f.bytes, f.xxh3);
  return text;
}

void add_records(const std::string& text, std::vector<checkpoint::FileRecord>& to) {
  std::istringstream in(text);
  for (checkpoint::FileRecord f; in >> f.name >> f.bytes >> f.xxh3;) to.push_back(f);
}

}  // namespace

checkpoint::PartSource own_part_of(plugin::Session& s, plugin::Scope scope, const runfile::RunConfig& c,
                                   const std::vector<TensorInfo>& tensors) {
  return [&s, scope, &p = c.run.parallel, &tensors](const checkpoint::PartSink& sink) {
    std::unordered_map<std::string_view, const TensorInfo*> by_name;
    for (const TensorInfo& t : tensors) by_name[t.name] = &t;
    s.save_own_part(scope, [&](const plugin::TensorPiece& piece) {
      const auto found = by_name.find(piece.name);
      if (found == by_name.end() || piece.dtype != DType::kF32)
        throw run_error("the trainer saved '" + piece.name + "', which the model does not have in f32");
      const TensorInfo& whole = *found->second;
      const TensorPart part = part_of_tensor(whole, p, p.tensor_rank ? p.tensor_rank - 1 : 0);
      const bool same = whole.rank == 2 ? piece.dim[0] == part.part_rows && piece.dim[1] == part.part_cols
                                        : piece.dim[0] == part.elements();
      if (piece.rank != whole.rank || !same)
        throw run_error(
            fmt::format("the trainer saved a part of '{}' as {} x {}; the part of this rank is {} x {}",
                        piece.name, piece.dim[0], piece.dim[1], part.part_rows, part.part_cols));
      sink(whole, part, piece.first, {static_cast<const float*>(piece.data), piece.count});
    });
  };
}

PartStateSource own_state_of(plugin::Session& s, const runfile::RunConfig& c) {
  return [&s, &c](std::size_t scope, const std::vector<TensorInfo>& tensors) {
    return own_part_of(s, state_scopes(c)[scope], c, tensors);
  };
}

SharedSave::SharedSave(Ranks& ranks, checkpoint::Store& store, checkpoint::Meta meta,
                       const runfile::RunConfig& c)
    : ranks_(ranks), store_(store), meta_(std::move(meta)), config_(c) {
  ranks_.together([&] {
    if (ranks_.first()) staged_ = store_.stage(meta_.step, planning::state_bytes(config_));
  });
  dir_ = ranks_.of_first(staged_ ? staged_->dir.string() : std::string());
}

SharedSave::~SharedSave() {
  if (staged_) store_.undo(*staged_);
}

void SharedSave::write(const PartStateSource& state) noexcept try {
  for (std::size_t scope = 0; scope < state_scopes(config_).size(); ++scope) {
    const std::vector<TensorInfo> tensors = state_tensors(config_, scope);
    own_.push_back(checkpoint::write_rank_file(
        dir_ / checkpoint::name_of_rank_file(state_file(scope), ranks_.rank(), ranks_.count()), tensors,
        state(scope, tensors)));
  }
} catch (...) {
  failed_ = std::current_exception();
}

fs::path SharedSave::finish() {
  ranks_.together([&] {
    if (failed_) std::rethrow_exception(failed_);
  });
  std::vector<checkpoint::FileRecord> all;
  for (std::uint32_t r = 0; r < ranks_.count(); ++r)
    add_records(ranks_.of_rank(r, r == ranks_.rank() ? text_of(own_) : ""), all);
  ranks_.together([&] {
    if (ranks_.first()) store_.publish(*staged_, meta_, std::move(all));
  });
  const fs::path target = ranks_.of_first(staged_ ? staged_->target.string() : std::string());
  ranks_.together([&] {
    for (const checkpoint::FileRecord& f : own_)
      if (const std::string damage = checkpoint::damage_of_file(target, f); !damage.empty())
        throw run_error(
            fmt::format("{} is damaged after writing: {}", escaped(target.string(), 4096), damage));
  });
  const std::optional<checkpoint::Store::Staged> verified = std::exchange(staged_, std::nullopt);
  ranks_.together([&] {
    if (verified) store_.complete(*verified);
  });
  return target;
}

}  // namespace trainhost::training
