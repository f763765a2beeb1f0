// Loads kernels, selects the algorithms of products and allocates the arenas, in this order: what loading
// takes is not part of the plan, and the plan must fit into what it leaves. Queues no operation of a step.
// Timing of algorithms: gemm.cpp. See start_up.hpp.
#include "plugins/cuda/engine/start_up.hpp"

#include <algorithm>
#include <string>

#include "core/base/text.hpp"
#include "core/executor/rank_operations.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/product_choices.hpp"
#include "plugins/cuda/kernels/launch.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using step::SectionKind;

// Queues the operations of a section in loading mode, so that exactly the kernels and shapes of the run are
// loaded, by the code that queues them later.
void load_section(OpContext& ctx, SectionKind kind, const StepState& state) {
  const step::Section s = ctx.program.section(kind);
  const std::vector<step::Op>& ops = ctx.program.ops;
  ctx.step = state;
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    // Copies need no kernel, and operations of the host no device. Collectives: NcclRanks::warm_up().
    if (ops[i].kind == OpKind::kCopy || ops[i].kind == OpKind::kHold ||
        executor::RankOperations::contains(ops[i].kind) || step::runs_on_host(ctx.program, ops[i]))
      continue;
    // Generation has one row of logits, which is not divided.
    if (ops[i].kind != OpKind::kHeadLogits || kind == SectionKind::kGenerate) {
      queue_ops(ctx, {&ops[i], 1});
      continue;
    }
    // The hybrid mode computes the logits in pieces; the last one may be shorter, and is then a product of
    // another shape with its own algorithm.
    const std::uint64_t piece = head_piece_rows(ctx.buffer(ops[i][step::operand::head_logits::kLogits]));
    for (const std::uint64_t rows : {std::min(piece, state.rows), state.rows % piece})
      if (rows != 0) queue_head_logits(ctx, ops[i], 0, rows);
  }
}

// Part of the key of a stored algorithm.
std::string device_text(int device) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, device), "querying the device");
  return std::string(p.name) + ", sm_" + std::to_string(p.major) + std::to_string(p.minor);
}

void log(const th_host* host, std::int32_t level, const std::string& text) {
  if (host->log) host->log(host, level, kId, text.c_str());
}

}  // namespace

void load_kernels(OpContext& ctx) {
  // From here to the end of this function, launches load the kernel and products register their shape.
  const LoadingKernels loading;
  const std::uint64_t rows = ctx.program.run.tokens_per_micro_batch();
  // The first micro-batch overwrites gradients, the others add to them.
  for (const bool first : {true, false}) load_section(ctx, SectionKind::kMicro, {rows, 0, 0, first, 0});
  load_section(ctx, SectionKind::kEval, {rows, 0, 0, true, 0});
  // Sections that the program lacks are empty ranges.
  load_section(ctx, SectionKind::kGenerate, {1, 0, 0, true, 0});
  load_section(ctx, SectionKind::kUpdate, {rows, 0, 0, true, 0});
  const step::Section update = ctx.program.section(SectionKind::kUpdate);
  const step::Op* squares = nullptr;
  for (std::uint32_t i = update.begin; i < update.end; ++i)
    if (ctx.program.ops[i].kind == OpKind::kGradSquares &&
        !step::runs_on_host(ctx.program, ctx.program.ops[i]))
      squares = &ctx.program.ops[i];
  if (update.begin != update.end) queue_finish_norm(ctx, squares);
  // CheckpointTensors rounds weights, of which a piece may start at any element. The kernel is selected by
  // the alignment of the address, so an aligned and an unaligned one are passed; neither is accessed.
  if (ctx.bf16())
    for (const std::uintptr_t at : {4096, 4096 + 2})
      check(to_bf16(nullptr, 64, reinterpret_cast<const float*>(4096), reinterpret_cast<Bf16*>(at)),
            "loading kernels");
}

void start_up(const th_host* host, int device, const step::Program& program, Gemm& gemm, Arenas& arenas,
              NcclRanks* ranks) {
  // A plan that cannot fit fails here, before algorithms are timed.
  const std::uint64_t free_before = arenas.require_free_device_memory();
  // No stream, because nothing is queued. The addresses of `arenas` only have the right alignment yet.
  OpContext ctx{program, arenas, gemm, nullptr, {}, program.find(step::role::kScalars), 0};
  load_kernels(ctx);
  const step::BufferId workspace = program.find(step::role::kVendorWorkspace);
  const std::uint64_t workspace_bytes = workspace == step::kNoBuffer ? 0 : program[workspace].bytes();
  // In a file, algorithms stay the same from run to run, and so do the bits of the results.
  const std::string file = product_choices_file(host->option ? host->option(host, "products") : nullptr);
  if (file.empty()) {
    gemm.select_algorithms(nullptr);
  } else {
    ProductChoices choices(file, device_text(device), workspace_bytes);
    gemm.select_algorithms(&choices);
    if (const std::string why = choices.save(); !why.empty())
      log(host, TH_LOG_WARN,
          "the algorithms of matrix products were chosen by time and cannot be kept: " + why +
              "; another run may choose others and give other bits (plugin.cuda.products names another "
              "file)");
  }
  if (ranks) ranks->warm_up();
  // What loading takes is known now, and the plan must fit into what is left.
  const std::uint64_t free_after = arenas.require_free_device_memory();
  log(host, TH_LOG_DEBUG,
      std::string("kernels and cuBLASLt ") + (ranks ? "and NCCL " : "") + "take " +
          format_bytes(free_before - std::min(free_before, free_after)) + ", " + format_bytes(free_after) +
          " of device memory are free for the plan");
  arenas.allocate();
  // select_algorithms() used temporary memory, which it has freed.
  gemm.set_workspace(arenas.get<void>(workspace));
}

}  // namespace trainhost::cuda
