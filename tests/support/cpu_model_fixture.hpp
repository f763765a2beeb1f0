// Fixture: a model on the CPU trainer's executor, without the C interface, with any storage, kernel table and
// number of threads. Weights are written, and weights, moments and gradients read, by checkpoint name.
#pragma once
#include <memory>

#include "core/base/bf16.hpp"
#include "core/executor/quantized_tensors.hpp"
#include "core/executor/walker.hpp"
#include "core/placement/memory_plan.hpp"
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/engine/cpu_backend.hpp"
#include "tests/support/separate_storage.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost::test {

/// All buffers in one arena, at their planned offsets.
class PlannedStorage final : public executor::Storage {
 public:
  PlannedStorage(const step::Program& p) : plan_(placement::place(p)), arena_(plan_.arena_bytes / 64 + 1) {}
  void* at(step::BufferId b) override {
    return reinterpret_cast<std::byte*>(arena_.data()) + plan_.offset[b];
  }
  const placement::MemoryPlan& plan() const { return plan_; }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64] = {};
  };
  placement::MemoryPlan plan_;
  std::vector<Line> arena_;
};

class CpuModelFixture {
 public:
  CpuModelFixture(const ModelSpec& m, const RunSpec& r, const cpu::Kernels& kernels, std::uint32_t threads,
                  bool separate = false, const TrainerTraits* traits = nullptr)
      : program(step::build_program(m, r, traits ? *traits : cpu::traits_of(m, r, threads))) {
    if (separate)
      storage = std::make_unique<SeparateStorage>(program);
    else
      storage = std::make_unique<PlannedStorage>(program);
    backend = std::make_unique<cpu::CpuBackend>(
        program, *storage, kernels, program.traits.f32_storage ? nullptr : &cpu::select_bf16_kernels());
    walker = std::make_unique<executor::Walker>(program, *storage, *backend);
    quantized = std::make_unique<executor::QuantizedTensors>(program, *storage);
  }

  void load(const reference::Weights& w) {
    each([&](std::uint32_t tensor, const step::Param& p, std::uint64_t first) {
      const reference::Vec& v = w.at(program.tensor_infos[tensor].name);
      if (quantized->contains(tensor))
        return quantized->load(tensor, 0, std::vector<float>(v.begin(), v.end()));
      if (p.master != step::kNoBuffer || !is_bf16(p.weight)) {
        float* to =
            static_cast<float*>(storage->at(p.master != step::kNoBuffer ? p.master : p.weight)) + first;
        for (std::size_t i = 0; i < v.size(); ++i) to[i] = static_cast<float>(v[i]);
      }
      if (!is_bf16(p.weight)) return;
      auto* rounded = static_cast<std::uint16_t*>(storage->at(p.weight)) + first;
      for (std::size_t i = 0; i < v.size(); ++i) rounded[i] = bf16_from_f32(static_cast<float>(v[i]));
    });
  }
  reference::Weights read(step::BufferId step::Param::*which = &step::Param::weight) {
    reference::Weights out;
    each([&](std::uint32_t tensor, const step::Param& p, std::uint64_t first) {
      const TensorInfo& t = program.tensor_infos[tensor];
      if (which == &step::Param::weight && quantized->contains(tensor)) {
        out[t.name] = dequantized(p, first);
        return;
      }
      // The f32 values of a weight that is stored in bf16 are those of its master copy.
      const step::BufferId b =
          which == &step::Param::weight && p.master != step::kNoBuffer ? p.master : p.*which;
      if (b == step::kNoBuffer) return;  // of a frozen parameter
      if (is_bf16(b)) {                  // a frozen weight
        const auto* stored = static_cast<const std::uint16_t*>(storage->at(b)) + first;
        for (std::uint64_t i = 0; i < t.elements(); ++i) out[t.name].push_back(f32_from_bf16(stored[i]));
        return;
      }
      const float* from = static_cast<const float*>(storage->at(b)) + first;
      out[t.name].assign(from, from + t.elements());
    });
    return out;
  }
  executor::UpdateResult update(const reference::Ids& ids, const reference::Ids& targets, double lr,
                                std::uint64_t index, const reference::Ids& starts = {}) {
    executor::UpdateResult out;
    const std::int32_t* at = starts.empty() ? nullptr : starts.data();
    if (walker->update({ids.data(), targets.data(), lr, index, at}, nullptr, out) != executor::Outcome::kDone)
      throw std::runtime_error("the update was not applied");
    return out;
  }
  executor::UpdateResult evaluate(const reference::Ids& ids, const reference::Ids& targets,
                                  const reference::Ids& starts = {}) {
    executor::UpdateResult out;
    walker->evaluate(ids.data(), targets.data(), starts.empty() ? nullptr : starts.data(),
                     static_cast<std::uint32_t>(ids.size() / program.run.seq_len), nullptr, out);
    return out;
  }
  std::vector<float> next(std::int32_t token, std::uint32_t position) {
    std::vector<float> logits(program.model.vocab);
    walker->next_logits(token, position, logits.data());
    return logits;
  }

  step::Program program;
  std::unique_ptr<executor::Storage> storage;
  std::unique_ptr<cpu::CpuBackend> backend;
  std::unique_ptr<executor::Walker> walker;
  std::unique_ptr<executor::QuantizedTensors> quantized;

 private:
  bool is_bf16(step::BufferId b) const { return program[b].dtype == DType::kBF16; }
  /// The values of the tensor that begins at this element of a parameter in NF4.
  reference::Vec dequantized(const step::Param& p, std::uint64_t first) {
    const step::QuantizedParam q = step::quantized_param(program, p);
    for (const step::QuantizedMatrix& m : q.all()) {
      if (m.first_element != first) continue;
      std::vector<float> values(m.layout.elements);
      nf4::dequantize_blocks(m.layout, static_cast<const std::byte*>(storage->at(p.weight)) + m.first_byte, 0,
                             values);
      return {values.begin(), values.end()};
    }
    return {};
  }
  template <class F>
  void each(F&& f) {
    for (const step::Param& p : program.params)
      for (const step::Slice& s : p.slices) f(s.tensor, p, s.first_element);
  }
};

}  // namespace trainhost::test
