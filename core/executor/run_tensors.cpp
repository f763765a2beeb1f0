// See run_tensors.hpp.
#include "core/executor/run_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::executor {

Tensors::Tensors(const step::Program& program, Storage& storage, std::string trainer)
    : program_(program),
      storage_(storage),
      trainer_(std::move(trainer)),
      positions_(program.tensor_infos.size()),
      loaded_(program.tensor_infos.size()) {
  for (const step::Param& p : program_.params)
    for (const step::Slice& s : p.slices) positions_[s.tensor] = {&p, s.first_element};
}

float* Tensors::data(const Position& position, std::uint32_t scope) {
  const step::BufferId b = scope == TH_SCOPE_WEIGHTS   ? position.param->weight
                           : scope == TH_SCOPE_MOMENT1 ? position.param->m
                           : scope == TH_SCOPE_MOMENT2 ? position.param->v
                                                       : step::kNoBuffer;
  return b == step::kNoBuffer ? nullptr : storage_.f32(b) + position.first;
}

void Tensors::load(std::uint32_t scope, const th_tensor& t) {
  if (!t.name || !t.data) bad_argument("tensor without name or data");
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    if (info.name != t.name) continue;
    if (t.dtype != TH_DT_F32) bad_argument(info.name + ": the " + trainer_ + " trainer expects f32");
    if (t.rank != info.rank || t.dim[0] != info.dim[0] || (info.rank == 2 && t.dim[1] != info.dim[1]))
      bad_argument(info.name + ": shape differs from the model");
    if (t.first > info.elements() || t.count > info.elements() - t.first)
      bad_argument(info.name + ": range outside the tensor");
    float* to = data(positions_[i], scope);
    if (!to) bad_argument(info.name + ": the run has no such optimizer state");
    std::memcpy(to + t.first, t.data, t.count * sizeof(float));
    if (scope == TH_SCOPE_WEIGHTS) loaded_[i] += t.count;
    return;
  }
  bad_argument("no tensor named " + escaped(t.name) + " in this model");
}

// Divided into pieces of 64K elements, so that one large tensor occupies all threads. The values depend only
// on the element.
void Tensors::init(std::uint64_t seed, Backend& backend) {
  constexpr std::uint64_t kPiece = 1 << 16;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    const std::uint64_t n = info.elements();
    if (loaded_[i] >= n) continue;
    float* to = data(positions_[i], TH_SCOPE_WEIGHTS);
    backend.for_each(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p) {
      const std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
      init_tensor(program_.model, info, seed, first, std::span<float>(to + first, count));
    });
  }
}

void Tensors::save(std::uint32_t scope, th_tensor_sink& sink) {
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    float* from = data(positions_[i], scope);
    if (!from) continue;  // the optimizer does not have this moment
    th_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = TH_DT_F32;
    t.rank = info.rank;
    t.dim[0] = info.dim[0];
    t.dim[1] = info.rank == 2 ? info.dim[1] : 0;
    t.name = info.name.c_str();
    t.data = from;
    t.count = info.elements();
    if (th_status s = sink.tensor(&sink, &t); s != TH_OK)
      throw abi::StatusError(s, "the host refused tensor " + info.name);
  }
}

}  // namespace trainhost::executor
