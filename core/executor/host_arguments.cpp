// See host_arguments.hpp.
#include "core/executor/host_arguments.hpp"

#include <algorithm>
#include <charconv>

#include "core/abi/op_journal.hpp"
#include "core/base/text.hpp"
#include "core/model/trainable.hpp"

namespace trainhost::executor {
namespace {

/// A kernel indexes the embedding table with these ids, so an id outside it would read other memory. -100
/// marks a target that is not counted, as in PyTorch; a token has no such mark.
void validate_ids(std::uint64_t vocab, const std::int32_t* tokens, const std::int32_t* targets,
                  std::uint64_t n) {
  const auto in_vocabulary = [vocab](std::int32_t id) {
    return id >= 0 && static_cast<std::uint64_t>(id) < vocab;
  };
  const auto fail = [vocab](const char* what, std::uint64_t index, std::int32_t id) {
    bad_argument(std::string(what) + " " + std::to_string(index) + " is " + std::to_string(id) +
                 "; the vocabulary has " + std::to_string(vocab));
  };
  for (std::uint64_t i = 0; i < n; ++i) {
    if (!in_vocabulary(tokens[i])) fail("token", i, tokens[i]);
    if (!in_vocabulary(targets[i]) && targets[i] != -100) fail("target", i, targets[i]);
  }
}

/// Kernels skip keys before the start of a document and read nothing else before it, so a wrong start would
/// read outside the sequence or change the result without a sign.
void validate_starts(const std::int32_t* starts, std::uint64_t sequences, std::uint32_t seq) {
  for (std::uint64_t row = 0; row < sequences; ++row)
    for (std::uint32_t t = 0; t < seq; ++t) {
      const std::int32_t* of_row = starts + row * seq;
      const auto at = static_cast<std::int32_t>(t);
      if (of_row[t] == at || (t > 0 && of_row[t] == of_row[t - 1])) continue;
      bad_argument("start of document " + std::to_string(of_row[t]) + " of token " + std::to_string(t) +
                   " in sequence " + std::to_string(row) +
                   ": expected the token itself or the start of the token before it");
    }
}

/// Of the whole model; a TP rank has a part of it.
std::uint64_t vocabulary(const step::Program& p) {
  return p.model.vocab * (p.run.mode == RunMode::kInference ? 1 : p.run.parallel.tensor);
}

}  // namespace

std::size_t find_tensor(const step::Program& program, const th_tensor& piece, const std::string& trainer) {
  return find_tensor(program.tensor_infos, piece, trainer);
}

std::size_t find_tensor(std::span<const TensorInfo> tensors, const th_tensor& piece,
                        const std::string& trainer) {
  // Name first: the messages below quote it.
  if (!piece.name || !piece.data) bad_argument("tensor without name or data");
  const auto info =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == piece.name; });
  if (info == tensors.end()) bad_argument("no tensor named " + escaped(piece.name) + " in this model");
  if (piece.dtype != TH_DT_F32) bad_argument(info->name + ": the " + trainer + " trainer expects f32");
  // dim[1] of a vector is not read: the host may leave it unset.
  if (piece.rank != info->rank || piece.dim[0] != info->dim[0] ||
      (info->rank == 2 && piece.dim[1] != info->dim[1]))
    bad_argument(info->name + ": shape differs from the model");
  // Subtracted, not added: first + count could overflow.
  if (piece.first > info->elements() || piece.count > info->elements() - piece.first)
    bad_argument(info->name + ": range outside the tensor");
  return static_cast<std::size_t>(info - tensors.begin());
}

bool is_in_scope(const RunSpec& r, const TensorInfo& t, std::uint32_t scope) {
  const bool adapter = t.part != AdapterPart::kNone;
  if (scope == TH_SCOPE_ADAPTER) return adapter || (trains_adapters(r) && trains_weight(r, t.name));
  return scope != TH_SCOPE_WEIGHTS || !adapter;
}

void require_scope(const RunSpec& r, const TensorInfo& t, std::uint32_t scope) {
  if (is_in_scope(r, t, scope)) return;
  bad_argument(t.name +
               (scope == TH_SCOPE_ADAPTER ? " is no tensor of an adapter" : " is a tensor of an adapter"));
}

// The caller sets `data`, and `first` and `count` if it sends a part.
th_tensor describe_tensor(const TensorInfo& info) {
  th_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = TH_DT_F32;
  t.rank = info.rank;
  t.dim[0] = info.dim[0];
  t.dim[1] = info.rank == 2 ? info.dim[1] : 0;
  t.name = info.name.c_str();
  t.count = info.elements();
  return t;
}

void send_tensor(th_tensor_sink& sink, const th_tensor& tensor) {
  if (const th_status s = sink.tensor(&sink, &tensor); s != TH_OK)
    throw abi::StatusError(s, std::string("the host rejected tensor ") + tensor.name);
}

void validate_step(const step::Program& program, const th_step& step) {
  const RunSpec& r = program.run;
  const bool evaluate = step.flags & TH_STEP_EVALUATE;
  // An update gets all its micro-batches in one call; an evaluation at most one.
  const std::uint64_t sequences = evaluate ? r.micro_batch : std::uint64_t{r.accumulate} * r.micro_batch;
  const std::uint64_t tokens = std::uint64_t{step.batch} * step.seq;
  if (!evaluate && r.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update");
  // The last batch of an evaluation may be shorter. A short update would change the divisor of the loss.
  if (step.seq != r.seq_len || step.batch == 0 || step.batch > sequences ||
      (!evaluate && step.batch != sequences))
    bad_argument("step with " + std::to_string(step.batch) + " x " + std::to_string(step.seq) +
                 " tokens, but the run has " + std::to_string(sequences) + " x " + std::to_string(r.seq_len));
  if (!step.tokens || !step.targets) bad_argument("step without tokens or targets");
  validate_ids(vocabulary(program), step.tokens, step.targets, tokens);
  if ((step.starts != nullptr) != r.document_mask)
    bad_argument(r.document_mask
                     ? "step without the starts of the documents"
                     : "step with starts of documents, but the run has one document per sequence");
  if (step.starts) validate_starts(step.starts, step.batch, step.seq);
  // The mean loss divides by this number.
  if (!evaluate && counted_targets(step.targets, tokens) == 0)
    bad_argument("step without counted targets: all are -100");
}

void validate_next(const step::Program& program, std::int32_t token, std::uint32_t position) {
  if (token < 0 || static_cast<std::uint64_t>(token) >= vocabulary(program))
    bad_argument("token " + std::to_string(token) + " is outside the vocabulary");
  // The key/value cache has one row per position of the sequence.
  if (position >= program.run.seq_len)
    bad_argument("position " + std::to_string(position) + ", but the cache has " +
                 std::to_string(program.run.seq_len));
}

void validate_record_buffer(const step::Program& program, const void* records, std::uint64_t bytes) {
  if (program.run.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update to profile");
  const std::uint64_t need = abi::record_bytes(program);
  if (!records || bytes < need)
    bad_argument(std::to_string(bytes) + " bytes for records, but a step of this run needs " +
                 std::to_string(need));
}

std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n) {
  return n - static_cast<std::uint64_t>(std::count(targets, targets + n, -100));
}

void return_result(Outcome outcome, const UpdateResult& result, th_step_out& out) {
  // Before any throw: the host may read them beside the error.
  out.loss = result.loss;
  out.grad_norm = result.grad_norm;
  out.tokens_counted = result.counted;
  if (outcome == Outcome::kCancelled) throw abi::StatusError(TH_E_CANCELLED, "stopped by the host");
  if (outcome == Outcome::kNonFinite)
    throw abi::StatusError(TH_E_NONFINITE,
                           "loss " + std::to_string(result.loss) + ", gradient norm " +
                               std::to_string(result.grad_norm) + ": the update was not applied" +
                               (result.cause.empty() ? "" : "; " + result.cause),
                           "reduce optimizer.lr, or increase optimizer.warmup_steps");
}

std::optional<std::int32_t> layer_of_metric(std::string_view key, std::uint32_t layers, bool part) {
  const std::string_view norm = part ? "grad_norm_part." : "grad_norm.";
  if (!key.starts_with(norm)) return std::nullopt;
  key.remove_prefix(norm.size());
  if (key == "outside_layers") return -1;
  constexpr std::string_view kPrefix = "layer.";
  if (!key.starts_with(kPrefix)) return std::nullopt;
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(key.data() + kPrefix.size(), key.data() + key.size(), layer);
  if (error != std::errc{} || end != key.data() + key.size() || layer >= layers) return std::nullopt;
  return static_cast<std::int32_t>(layer);
}

}  // namespace trainhost::executor
