// Notes of the calculon report, one function per topic: where this model or run breaks an assumption, and by
// how many bytes. A function adds no note if the model's form holds. Computes true values only; Calculon's
// are in closed_form.cpp. Mistakes of the source: docs/memory-model.md ("Known mistakes of these rules").
#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/calculon/report.hpp"

namespace trainhost::calculon {
namespace {

std::string count(std::uint64_t v) { return format_count(v); }

std::string mib(std::uint64_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f MiB", double(bytes) / (1 << 20));
  return text;
}

// Relative error of the form, "-1.95 %".
std::string percent(std::uint64_t formula, std::uint64_t truth) {
  char text[40];
  std::snprintf(text, sizeof text, "%+.2f %%", 100.0 * (double(formula) - double(truth)) / double(truth));
  return text;
}

/// Architecture of the model; nullopt for a family that core/model does not know or without its config.json.
std::optional<model::Architecture> architecture_of(const ModelSpec& m) {
  if (!model::known_family(m.family) && !trainable_family(m.family)) return std::nullopt;
  try {
    return model::from_model(m);
  } catch (const Error&) {
    return std::nullopt;  // no notes about it then; the estimate needs only the dimensions
  }
}

class Notes {
 public:
  Notes(const ModelSpec& m, const RunSpec& r, const Options& o)
      : m_(m),
        r_(r),
        o_(o),
        to_(map(m, r, o)),
        a_(to_.application),
        e_(to_.execution),
        s_(sizes(a_, e_)),
        real_(architecture_of(m)) {}

  // The summary first; then the model, the layout, and what training or inference adds.
  std::vector<std::string> collect() {
    summary();
    model();
    embedding();
    pipeline();
    static_memory();
    attention();
    training();
    parallelism();
    inference();
    return std::move(notes_);
  }

 private:
  // Latent attention (DeepSeek) has neither key/value heads nor a cache per head. All layers have the kind
  // of the first one.
  bool latent() const { return real_ && !real_->layers.empty() && real_->layers[0].layer.attention.latent; }

  void note(const std::string& sentence) { notes_.push_back(sentence); }

  /// Summary of what is counted, in one note.
  void summary() {
    note(std::string(
             "Calculon counts one rank of a GPT-like model: attention with materialised scores, an MLP of "
             "two matrices, ") +
         (e_.training ? "Adam's state in f32; no logits, workspace or runtime."
                      : "no KV cache, logits, workspace or runtime."));
  }

  /// The form assumes GPT blocks: as many KV heads as query heads, an MLP of two matrices, two LayerNorms, no
  /// biases.
  void model() {
    if (latent())
      note("Calculon has no latent attention: q, k, v and output are counted as full matrices of " +
           std::to_string(m_.heads) + " heads of " + std::to_string(m_.head_dim) + ".");
    // Multi-query attention is the one kind of fewer heads that Calculon has.
    else if (!e_.multiquery && m_.kv_heads && m_.kv_heads < m_.heads)
      note("Calculon has no grouped-query attention: k and v are counted with " + std::to_string(m_.heads) +
           " heads instead of " + std::to_string(m_.kv_heads) + ", " +
           count(checked_mul(2, m_.layers, m_.hidden, m_.heads - m_.kv_heads, m_.head_dim)) +
           " parameters too many.");
    if (real_ && real_->has_experts())
      note("Calculon has no experts: each block is counted with one MLP of width " +
           std::to_string(m_.intermediate) + ".");
    else if (real_ && !real_->layers.empty() && real_->layers[0].layer.mlp.gated)
      note("Calculon has no gated MLP: the gate, L*H*I = " +
           count(checked_mul(m_.layers, m_.hidden, m_.intermediate)) + " parameters, is not counted.");
    // The sum of all errors above, also of those without a note (biases, norms).
    const std::uint64_t form = form_parameters(m_, o_, to_), truth = real_ ? model::count(*real_).total : 0;
    if (real_ && truth != form)
      note("True parameters: " + count(truth) + "; Calculon counts " + count(form) + " (" +
           percent(form, truth) + ").");
  }

  void embedding() {
    // Not divided: the whole matrix, of all tensor-parallel ranks.
    const std::uint64_t one = checked_mul(m_.vocab, m_.hidden), matrices = m_.tied ? 1 : 2;
    if (!o_.embedding)
      return note("Calculon itself has no embedding and no LM head: " + count(checked_mul(matrices, one)) +
                  " parameters are not counted; plugin.calculon.embedding = true counts them.");
    if (e_.training)
      note(
          "Embedding and LM head are counted as in Calculon's static memory note, with weights and optimizer "
          "state; their gradients would take " +
          count(checked_mul(to_.embedding.elements(), 4)) + " bytes in f32. Calculon itself has neither.");
    else
      note(
          "Embedding and LM head are counted as in Calculon's static memory note; Calculon itself has "
          "neither.");
    // Blocks keep two of them on the device (Space); the embedding is moved as a whole.
    const EmbeddingSizes offloaded = embedding_sizes(to_.embedding, e_);
    if (offloaded.tier2())
      note(
          "The " + count(offloaded.tier2()) +
          " bytes of the offloaded embedding are counted in tier 2 only, not the part in use on the device.");
  }

  void pipeline() {
    const std::uint64_t stages = e_.pipeline_par;
    if (stages > 1 && o_.embedding) {
      const std::uint64_t bytes = weight_bytes(to_.embedding.elements(), e_.bytes_per_element);
      // Tied: the last stage computes logits with a copy of the first stage's matrix.
      if (m_.tied)
        note("Tied embeddings are on the first and the last pipeline stage: " + count(bytes) +
             " bytes of weights each, " + count(checked_mul(2, bytes)) +
             " in total; the estimate is for one of these two stages.");
      else
        note("The first pipeline stage holds the embedding and the last the LM head, " + count(bytes) +
             " bytes of weights each; the estimate is for one of these two stages.");
    }
    if (stages > 1 && m_.layers % stages != 0)
      note("The " + std::to_string(stages) + " stages do not divide " + std::to_string(m_.layers) +
           " layers: the estimate is for a stage with " + std::to_string(s_.blocks) + " layers.");
  }

  void static_memory() {
    if (!e_.training) return;
    // Figures of the note that accompanies Calculon, so that its examples can be compared.
    const EmbeddingSizes extra = embedding_sizes(to_.embedding, e_);
    const std::uint64_t bytes =
        checked_add(checked_add(s_.weights.all, s_.optimizer_space()),
                    checked_add(extra.weights.all, checked_add(extra.master.all, extra.moments.all)));
    note("Static memory of Calculon's note (weights and optimizer state of this rank): " + count(bytes) +
         " bytes = " + mib(bytes) + "; \"MB\" in the note means MiB.");
    if (e_.bytes_per_element < 4) {
      // As printed, 4 bytes are multiplied by the bytes of the weights instead of by their number.
      const std::uint64_t elements = s_.block.weights;
      note(
          "The note's formula of the f32 master copy mixes elements and bytes; here it is 4 bytes per "
          "element: " +
          count(master_bytes(elements, e_.bytes_per_element)) +
          " bytes per block; the formula as printed gives " +
          count(checked_mul(4, weight_bytes(elements, e_.bytes_per_element))) + ".");
    }
  }

  /// Calculon always materialises scores; the note has the bytes that flash attention saves.
  void attention() {
    Execution flash = e_;
    flash.scores = false;
    const Sizes without_scores = sizes(a_, flash);
    // On the device; the offloaded part follows.
    const std::uint64_t saved = s_.tier1() - without_scores.tier1();
    if (saved)
      note("Calculon always counts materialised attention, A*S*S scores per block; flash attention" +
           std::string(r_.memory.attention == AttentionMemory::kFlash ? ", which this run uses," : "") +
           " needs " + count(saved) + " bytes less.");
    if (s_.activations.tier2 > without_scores.activations.tier2)
      note("The offloaded activations include " +
           count(s_.activations.tier2 - without_scores.activations.tier2) + " bytes of these scores.");
    // Divided over the tensor-parallel ranks like the head.
    note("Logits are not counted: B*S*V/t*4 = " +
         count(checked_mul(r_.micro_batch, r_.seq_len, m_.vocab, 4) / e_.tensor_par) +
         " bytes if materialised in f32.");
  }

  void training() {
    if (!e_.training) return;
    if (r_.mode != RunMode::kFull) note("Calculon has no adapters: this run is counted as full training.");
    // Calculon has one optimizer and one policy of recomputation.
    if (r_.optimizer != Optimizer::kAdamW) optimizer();
    if (e_.bytes_per_element < 4 && r_.master == DType::kNone)
      note("Calculon counts an f32 master copy for weights narrower than f32; this run has none: " +
           count(checked_add(s_.master.all, embedding_sizes(to_.embedding, e_).master.all)) + " bytes less.");
    if (s_.blocks > 1 && size_of(r_.grad) > e_.bytes_per_element && e_.optimizer_shards() == 1)
      note(
          "Calculon keeps the gradients of one block in f32 and of the others in the type of the weights; "
          "in " +
          std::string(name(r_.grad)) + " (this run) all blocks take " +
          count(checked_mul(s_.block.weights, s_.blocks, size_of(r_.grad))) + " bytes instead of " +
          count(s_.gradients.all) + ".");
    if (r_.recompute == Recompute::kSelective)
      note(
          "Selective recompute is counted as Calculon's attn_only: the outputs of softmax and dropout of the "
          "scores are recomputed.");
    if (r_.recompute == Recompute::kLayers)
      note(
          "Calculon has one recompute policy for all blocks; the weakest policy among the layers of this run "
          "is "
          "counted.");
    if (r_.recompute == Recompute::kFull && r_.memory.recompute_every > 1)
      note("With full recompute Calculon keeps the input of every block; this run keeps one per " +
           std::to_string(r_.memory.recompute_every) + " layers.");
  }

  void optimizer() {
    const std::uint64_t elements =
        checked_add(checked_mul(s_.block.weights, s_.blocks), to_.embedding.elements());
    // One f32 moment of everything that this rank updates.
    const std::uint64_t moment = checked_mul(elements, 4) / e_.optimizer_shards();
    std::string truth;
    if (r_.optimizer == Optimizer::kSgd) truth = " has none: 0 bytes";
    if (r_.optimizer == Optimizer::kSgdMomentum || r_.optimizer == Optimizer::kLion)
      truth = " has one: " + count(moment) + " bytes";
    if (truth.empty()) truth = " has other state";
    note("Calculon counts Adam's two f32 moments, " + count(checked_mul(2, moment)) + " bytes; " +
         std::string(name(r_.optimizer)) + truth + ".");
  }

  void parallelism() {
    // What Calculon has of ZeRO: optimizer and gradients together.
    if (e_.training && r_.parallel.zero >= 1 && e_.optimizer_sharding)
      note(
          "In Calculon a sharded optimizer also shards the gradients of all blocks except the current one: "
          "ZeRO 1 "
          "and 2 are equal.");
    if (r_.parallel.zero >= 3 && r_.parallel.data > 1)
      note(
          "Calculon does not shard weights over data-parallel ranks; with ZeRO 3 those of the blocks would "
          "take " +
          count(s_.weights.all / r_.parallel.data) + " bytes per rank instead of " + count(s_.weights.all) +
          ".");
    if (r_.parallel.context > 1 || r_.parallel.expert > 1)
      note(
          "Calculon has neither context nor expert parallelism: each rank is counted with all tokens and all "
          "weights.");
    if (e_.comm == Comm::kRsAg && !r_.parallel.sequence)
      note(
          "tensor_par_comm_type = \"rs_ag\" is sequence parallelism; the run has parallel.sequence = false.");
  }

  void inference() {
    if (e_.training) return;
    // True values: the cache of the blocks of this rank, its heads divided over the tensor-parallel ranks as
    // far as there are heads; a latent cache is the same on every rank.
    const DType cache = r_.memory.kv_cache == DType::kNone ? r_.weight : r_.memory.kv_cache;
    const bool known = real_ && !real_->layers.empty();
    const std::uint64_t width =
        known ? real_->layers[0].layer.attention.cache_width() : checked_mul(2, m_.kv_heads, m_.head_dim);
    const std::uint64_t split =
        latent() ? 1 : std::min<std::uint64_t>(e_.tensor_par, std::max(1u, m_.kv_heads));
    const std::uint64_t elements = checked_mul(s_.blocks, r_.micro_batch, r_.seq_len, width);
    note("Calculon does not count a KV cache for inference; it would take " +
         count(checked_mul(elements, bits_of(cache)) / 8 / split) + " bytes.");
  }

  const ModelSpec& m_;
  const RunSpec& r_;
  const Options& o_;
  const Mapped to_;
  const Application& a_;
  const Execution& e_;
  const Sizes s_;
  const std::optional<model::Architecture> real_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Options& o) {
  return Notes(m, r, o).collect();
}

std::uint64_t form_parameters(const ModelSpec& m, const Options& o, const Mapped& mapped) {
  Execution one;  // one rank with all parameters
  one.multiquery = mapped.execution.multiquery;
  const std::uint64_t blocks = checked_mul(block(mapped.application, one).weights, m.layers);
  return o.embedding ? checked_add(blocks, checked_mul(m.vocab, m.hidden, m.tied ? 1 : 2)) : blocks;
}

}  // namespace trainhost::calculon
