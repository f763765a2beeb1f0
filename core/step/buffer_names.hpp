// The role names of all buffers, one constant per role. The recompute policies compare them by address;
// dumps, digests and Program::find() compare the text. size_formula.cpp gives the size of each role.
#pragma once
#include <cstdint>

namespace trainhost::step {

/// Values of Buffer::copy: distinguishes buffers of the same role and layer.
enum Copy : std::uint32_t {
  kOriginal = 0,
  kRecomputedCopy = 1,  // recomputed in the backward pass
  kOfEval = 2,
  kOfGenerate = 3,
  kRecomputedAgain = 4,  // + i: recomputed for the (i + 2)-th time
  kOnHost = 1000,        // host counterpart of a device buffer
  kTokenOnHost = 1001,   // the same in the generate section
  kStreamed = 1002,      // + i: temporary device copy for the i-th pass over a parameter
  // + i: with ZeRO 2 and 3, the whole of a parameter of which the rank has a shard: its gradient in a
  // micro-batch, or its weight for the i-th pass over it.
  kWhole = 1u << 20,
  // With the role of a gradient: the direction of Muon that is computed from it; and in host memory.
  kDirection = 2u << 20,
  kDirectionOnHost,
  // Likewise, of Adafactor: sums over TP ranks, of squared gradients and of squared changes.
  kFactoredSums,
  kFactoredChange
};

namespace role {
// Inputs from the host. On a device: their copies there and the rows sorted by id, sent in one transfer.
inline constexpr char kIds[] = "ids", kTargets[] = "targets", kOrder[] = "order";
// The first token of each token's document, where a sequence has several documents.
inline constexpr char kStarts[] = "starts";
// On a device: the number of the micro-batch, counted from the first one of the run; for dropout.
inline constexpr char kMicroBatch[] = "micro_batch";
// Page-locked: the inputs of a step; parts of tensors on their way between files and the device.
inline constexpr char kFeed[] = "feed", kStaging[] = "staging";
// Persistent buffers that are not parameters.
// nf4_scales: the scales of a frozen tensor while it is loaded and quantized; nf4_staging: the tensor, on its
// way to or from a device.
inline constexpr char kNf4Scales[] = "nf4_scales", kNf4Staging[] = "nf4_staging", kRopeTable[] = "rope_table",
                      kScalars[] = "scalars", kVendorWorkspace[] = "vendor_workspace",
                      kCollectiveScratch[] = "collective_scratch";  // what other ranks send
// Per token and TP rank, of its part of the vocabulary: maximum, sum of exponentials, logit of the target.
inline constexpr char kHeadStats[] = "head_stats";
// With sequence parallelism: activations of all TP ranks, gathered from the rows that each has; and sums over
// the TP ranks, of which each takes its rows. By what is gathered or added up.
inline constexpr char kH1All[] = "h1.all", kH2All[] = "h2.all", kHfAll[] = "hf.all", kDxDown[] = "dx.down",
                      kDxO[] = "dx.o", kDxEmbed[] = "dx.embed";
inline constexpr char kEmbedSum[] = "embed.sum", kOSum[] = "o.sum", kDownSum[] = "down.sum",
                      kDH1Sum[] = "d_h1.sum", kDH2Sum[] = "d_h2.sum";
// Activations of a layer, in the order of the forward pass. x is the input of the layer.
inline constexpr char kX[] = "x", kH1[] = "h1", kRstd1[] = "rstd1", kQkv[] = "qkv", kQkPre[] = "qk_pre",
                      kQkRstd[] = "qk_rstd", kAttnOut[] = "attn_out", kLse[] = "lse", kXMid[] = "x_mid",
                      kH2[] = "h2", kRstd2[] = "rstd2", kGateUp[] = "gate_up", kAct[] = "act";
// After the last layer.
inline constexpr char kXOut[] = "x_out", kHf[] = "hf", kRstdF[] = "rstd_f", kLogits[] = "logits";
// u = x A^T of the adapters of a product, and its gradient, by AdapterGroup.
inline constexpr char kQkvLora[] = "qkv_lora", kOLora[] = "o_lora", kGateUpLora[] = "gate_up_lora",
                      kDownLora[] = "down_lora", kEmbedLora[] = "embed_lora", kHeadLora[] = "head_lora";
inline constexpr const char* kLora[] = {kQkvLora, kOLora, kGateUpLora, kDownLora, kEmbedLora, kHeadLora};
// A of the adapter of a head that has that of the embedding: its B transposed.
inline constexpr char kHeadLoraA[] = "head_lora_a";
// That of the head is computed in place.
inline constexpr const char* kDLora[] = {"d_qkv_lora", "d_o_lora", "d_gate_up_lora", "d_down_lora",
                                         "d_embed_lora"};
// The input of the adapters of a product after dropout, and the gradient of it.
inline constexpr char kQkvDropped[] = "qkv_dropped", kODropped[] = "o_dropped",
                      kGateUpDropped[] = "gate_up_dropped", kDownDropped[] = "down_dropped";
inline constexpr const char* kDropped[] = {kQkvDropped, kODropped, kGateUpDropped, kDownDropped};
inline constexpr const char* kDDropped[] = {"d_qkv_dropped", "d_o_dropped", "d_gate_up_dropped",
                                            "d_down_dropped"};
// Of the head, whose recomputation no policy decides.
inline constexpr char kHeadDropped[] = "head_dropped", kDHeadDropped[] = "d_head_dropped";
// DoRA, by AdapterGroup: the output of a product with its adapters before the magnitudes, [M, outputs], which
// becomes its own gradient; per output m / norm and 1 / norm, [2, outputs]; with dropout, the gradient of the
// product alone.
inline constexpr char kQkvUnscaled[] = "qkv_unscaled", kOUnscaled[] = "o_unscaled",
                      kGateUpUnscaled[] = "gate_up_unscaled", kDownUnscaled[] = "down_unscaled";
// Of the head a chunk of rows at a time.
inline constexpr const char* kUnscaled[] = {kQkvUnscaled,  kOUnscaled,       kGateUpUnscaled,
                                            kDownUnscaled, "embed_unscaled", "head_unscaled"};
inline constexpr const char* kDoraScale[] = {"qkv_dora_scale",  "o_dora_scale",     "gate_up_dora_scale",
                                             "down_dora_scale", "embed_dora_scale", "head_dora_scale"};
// Squared norms of rows, of the products whose inputs TP ranks divide; by AdapterGroup.
inline constexpr const char* kDoraSquares[] = {nullptr, "o_dora_squares", nullptr, "down_dora_squares",
                                               "embed_dora_squares"};
inline constexpr const char* kDUnscaled[] = {"d_qkv_unscaled", "d_o_unscaled", "d_gate_up_unscaled",
                                             "d_down_unscaled"};
// Gradients of activations. dx is the gradient of the residual stream, updated in place through all layers.
inline constexpr char kDx[] = "dx", kDAct[] = "d_act", kDH2[] = "d_h2", kDAttnOut[] = "d_attn_out",
                      kDQkv[] = "d_qkv", kDH1[] = "d_h1", kDHf[] = "d_hf";
// Scratch: one buffer per operation, so that it is live only while that operation runs.
inline constexpr char kAttnScratch[] = "attn_scratch", kAttnBwdScratch[] = "attn_bwd_scratch",
                      kNorm1Partials[] = "norm1_partials", kNorm2Partials[] = "norm2_partials",
                      kQkPartials[] = "qk_norm_partials", kFinalPartials[] = "final_norm_partials",
                      kSquarePartials[] = "square_partials", kBiasPartials[] = "bias_partials",
                      kLosses[] = "losses", kAdafactorSums[] = "adafactor_sums", kMuonWork[] = "muon_work";
// A weight that is stored in NF4, as a matrix for one product of the forward or the backward pass, by
// AdapterGroup.
inline constexpr char kDeqQkv[] = "deq.qkv", kDeqO[] = "deq.o", kDeqGateUp[] = "deq.gate_up",
                      kDeqDown[] = "deq.down";
inline constexpr const char* kDequantized[] = {kDeqQkv, kDeqO, kDeqGateUp, kDeqDown};
inline constexpr const char* kDequantizedBwd[] = {"deq_bwd.qkv", "deq_bwd.o", "deq_bwd.gate_up",
                                                  "deq_bwd.down"};
// Page-locked memory for transfers: output of the embedding and its gradient.
inline constexpr char kHidden[] = "hidden", kDHidden[] = "d_hidden";
// Generation.
inline constexpr char kCacheK[] = "cache_k", kCacheV[] = "cache_v";

/// Role names of a parameter, its gradient, its optimizer state and its master copy.
struct ParamRoles {
  const char *weight, *grad, *m, *v, *master;
};
inline constexpr ParamRoles kEmbed{"w.embed", "grad.embed", "m.embed", "v.embed", "master.embed"};
inline constexpr ParamRoles kNorm1{"w.norm1", "grad.norm1", "m.norm1", "v.norm1", "master.norm1"};
inline constexpr ParamRoles kWQkv{"w.qkv", "grad.qkv", "m.qkv", "v.qkv", "master.qkv"};
inline constexpr ParamRoles kQkvBias{"w.qkv_bias", "grad.qkv_bias", "m.qkv_bias", "v.qkv_bias",
                                     "master.qkv_bias"};
inline constexpr ParamRoles kQNorm{"w.q_norm", "grad.q_norm", "m.q_norm", "v.q_norm", "master.q_norm"};
inline constexpr ParamRoles kKNorm{"w.k_norm", "grad.k_norm", "m.k_norm", "v.k_norm", "master.k_norm"};
inline constexpr ParamRoles kO{"w.o", "grad.o", "m.o", "v.o", "master.o"};
inline constexpr ParamRoles kOBias{"w.o_bias", "grad.o_bias", "m.o_bias", "v.o_bias", "master.o_bias"};
inline constexpr ParamRoles kNorm2{"w.norm2", "grad.norm2", "m.norm2", "v.norm2", "master.norm2"};
inline constexpr ParamRoles kWGateUp{"w.gate_up", "grad.gate_up", "m.gate_up", "v.gate_up", "master.gate_up"};
inline constexpr ParamRoles kGateUpBias{"w.gate_up_bias", "grad.gate_up_bias", "m.gate_up_bias",
                                        "v.gate_up_bias", "master.gate_up_bias"};
inline constexpr ParamRoles kDown{"w.down", "grad.down", "m.down", "v.down", "master.down"};
inline constexpr ParamRoles kDownBias{"w.down_bias", "grad.down_bias", "m.down_bias", "v.down_bias",
                                      "master.down_bias"};
inline constexpr ParamRoles kFinalNorm{"w.final_norm", "grad.final_norm", "m.final_norm", "v.final_norm",
                                       "master.final_norm"};
inline constexpr ParamRoles kHead{"w.head", "grad.head", "m.head", "v.head", "master.head"};
/// A and B of the adapters of a product, stacked by rows, by AdapterGroup.
inline constexpr ParamRoles kLoraA[] = {
    {"w.qkv_lora_a", "grad.qkv_lora_a", "m.qkv_lora_a", "v.qkv_lora_a", "master.qkv_lora_a"},
    {"w.o_lora_a", "grad.o_lora_a", "m.o_lora_a", "v.o_lora_a", "master.o_lora_a"},
    {"w.gate_up_lora_a", "grad.gate_up_lora_a", "m.gate_up_lora_a", "v.gate_up_lora_a",
     "master.gate_up_lora_a"},
    {"w.down_lora_a", "grad.down_lora_a", "m.down_lora_a", "v.down_lora_a", "master.down_lora_a"},
    {"w.embed_lora_a", "grad.embed_lora_a", "m.embed_lora_a", "v.embed_lora_a", "master.embed_lora_a"},
    {"w.head_lora_a", "grad.head_lora_a", "m.head_lora_a", "v.head_lora_a", "master.head_lora_a"}};
inline constexpr ParamRoles kLoraB[] = {
    {"w.qkv_lora_b", "grad.qkv_lora_b", "m.qkv_lora_b", "v.qkv_lora_b", "master.qkv_lora_b"},
    {"w.o_lora_b", "grad.o_lora_b", "m.o_lora_b", "v.o_lora_b", "master.o_lora_b"},
    {"w.gate_up_lora_b", "grad.gate_up_lora_b", "m.gate_up_lora_b", "v.gate_up_lora_b",
     "master.gate_up_lora_b"},
    {"w.down_lora_b", "grad.down_lora_b", "m.down_lora_b", "v.down_lora_b", "master.down_lora_b"},
    {"w.embed_lora_b", "grad.embed_lora_b", "m.embed_lora_b", "v.embed_lora_b", "master.embed_lora_b"},
    {"w.head_lora_b", "grad.head_lora_b", "m.head_lora_b", "v.head_lora_b", "master.head_lora_b"}};
/// The magnitudes of DoRA, of the adapted rows of a product, by AdapterGroup.
inline constexpr ParamRoles kMagnitude[] = {
    {"w.qkv_magnitude", "grad.qkv_magnitude", "m.qkv_magnitude", "v.qkv_magnitude", "master.qkv_magnitude"},
    {"w.o_magnitude", "grad.o_magnitude", "m.o_magnitude", "v.o_magnitude", "master.o_magnitude"},
    {"w.gate_up_magnitude", "grad.gate_up_magnitude", "m.gate_up_magnitude", "v.gate_up_magnitude",
     "master.gate_up_magnitude"},
    {"w.down_magnitude", "grad.down_magnitude", "m.down_magnitude", "v.down_magnitude",
     "master.down_magnitude"},
    {"w.embed_magnitude", "grad.embed_magnitude", "m.embed_magnitude", "v.embed_magnitude",
     "master.embed_magnitude"},
    {"w.head_magnitude", "grad.head_magnitude", "m.head_magnitude", "v.head_magnitude",
     "master.head_magnitude"}};
}  // namespace role
}  // namespace trainhost::step
