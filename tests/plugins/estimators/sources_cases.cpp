// In the order of the sources: the contract, the memory equation, the VRAM note, the CUDA trainer.
#include "tests/plugins/estimators/sources_cases.hpp"

#include <nlohmann/json.hpp>

#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/contract/closed_form.hpp"
#include "plugins/estimators/memory-equation/breakdown.hpp"
#include "plugins/estimators/vram-note/breakdown.hpp"

namespace trainhost::sources {
namespace {

namespace me = trainhost::memory_equation;
namespace vn = trainhost::vram_note;
using Json = nlohmann::json;

ModelSpec dimensions(const char* family, std::uint64_t V, std::uint32_t H, std::uint32_t L, std::uint32_t A,
                     std::uint32_t K, std::uint32_t I, std::uint32_t D = 0) {
  ModelSpec m;
  m.family = family, m.vocab = V, m.hidden = H, m.layers = L, m.heads = A, m.kv_heads = K, m.intermediate = I,
  m.head_dim = D ? D : H / A;
  return m;
}

/// The fields of a config.json that determine the parameter count.
std::string config_of(const ModelSpec& m) {
  return Json{{"model_type", m.family},         {"vocab_size", m.vocab},
              {"hidden_size", m.hidden},        {"num_hidden_layers", m.layers},
              {"num_attention_heads", m.heads}, {"num_key_value_heads", m.kv_heads},
              {"head_dim", m.head_dim},         {"intermediate_size", m.intermediate},
              {"tie_word_embeddings", m.tied}}
      .dump();
}

}  // namespace

const std::map<std::string, ModelSpec>& models() {
  static const std::map<std::string, ModelSpec> all = [] {
    std::map<std::string, ModelSpec> m;
    m["llama2-7b"] = dimensions("llama", 32000, 4096, 32, 32, 32, 11008);
    m["llama3-8b"] = dimensions("llama", 128256, 4096, 32, 32, 8, 14336);
    m["llama3.1-70b"] = dimensions("llama", 128256, 8192, 80, 64, 8, 28672);
    m["tinyllama-1.1b"] = dimensions("llama", 32000, 2048, 22, 32, 4, 5632);
    m["mistral-7b"] = dimensions("mistral", 32000, 4096, 32, 32, 8, 14336);
    m["qwen2.5-0.5b"] = dimensions("qwen2", 151936, 896, 24, 14, 2, 4864);
    m["qwen2.5-0.5b"].tied = m["qwen2.5-0.5b"].qkv_bias = true;
    m["gemma2-9b"] = dimensions("gemma2", 256000, 3584, 42, 16, 8, 14336, 256);
    m["gemma2-27b"] = dimensions("gemma2", 256000, 4608, 46, 32, 16, 36864, 128);
    for (const char* gemma : {"gemma2-9b", "gemma2-27b"})
      m[gemma].tied = true, m[gemma].config_json = config_of(m[gemma]);
    m["350m"] = dimensions("llama", 32768, 1024, 24, 16, 4, 4096);
    return m;
  }();
  return all;
}

RunSpec of_length(std::uint32_t S) {
  RunSpec r;
  r.seq_len = S;
  return r;
}

namespace {

std::uint64_t truth(const ModelSpec& m) { return rules::true_parameters(m); }

// ---- example of the third source: a 7B LLaMA of 32 layers ----

me::Inputs with_psi(double psi, Optimizer o = Optimizer::kAdamW, std::uint32_t zero = 0,
                    std::uint64_t ranks = 1) {
  me::Inputs in;
  in.psi = static_cast<std::uint64_t>(psi), in.layers = 32, in.hidden = 4096, in.heads = 32, in.seq = 2048;
  in.optimizer = o, in.zero = zero, in.ranks = ranks;
  return in;
}

double state(const me::Inputs& in) { return double(me::equation(in).state()); }

/// row of exercise 5 in GB: linear and quadratic term, their sum; with the share of the second where
/// `percent`.
void sequence_row(std::uint64_t batch, std::uint64_t seq, bool percent, Values& out) {
  me::Inputs in = with_psi(7e9);
  in.batch = batch, in.seq = seq;
  const double linear = double(me::exercise_linear(in)) / 1e9, scores = double(me::exercise_scores(in)) / 1e9;
  out.push_back(linear);
  if (percent) out.push_back(100 * scores / (linear + scores));
  out.insert(out.end(), {scores, linear + scores});
}

double parameter_share(std::uint32_t zero, std::uint64_t ranks, Optimizer o = Optimizer::kAdamW) {
  const me::Parts p = me::equation(with_psi(8e9, o, zero, ranks));
  return 100 * me::efficiency(p.parameters, p.state());
}

vn::Inputs gemma_as_stated() {
  const vn::Settings stated{.parameters = 27'000'000'000, .hidden = 4068, .vocab = 256128};
  RunSpec r = of_length(8192);
  r.mode = RunMode::kLora;
  return vn::inputs_of(models().at("gemma2-27b"), r, stated, truth(models().at("gemma2-27b")));
}

Values gib(std::uint64_t bytes) { return {double(bytes) / double(vn::kGiB)}; }

}  // namespace

std::map<std::string, Compute> computed() {
  std::map<std::string, Compute> c;
  for (const auto& [name, m] : models()) {
    if (name == "350m") continue;
    c["000-P-" + name] = [&m = m] { return Values{double(truth(m))}; };
  }
  for (auto [name, S] : {std::pair{"llama2-7b", 2048u}, {"llama3-8b", 8192u}, {"tinyllama-1.1b", 2048u}})
    c[std::string("000-K-") + name] = [&m = models().at(name), S] {
      return Values{double(contract::ten_tensor_bytes(m, of_length(S)))};
    };

  const auto plain = [&c](const char* id, double value) { c[id] = [value] { return Values{value}; }; };
  const auto left = [](double budget, double needed) {
    return double(me::spare_bytes(me::Bytes(budget), me::Bytes(needed)));
  };
  plain("002-14", double(me::equation(with_psi(7e9)).parameters));
  plain("002-112", state(with_psi(7e9)));
  plain("002-106", left(120e9, double(me::equation(with_psi(7e9)).parameters)));
  plain("002-7b-act", double(me::activations(with_psi(7e9))));
  c["002-7b-total"] = [] {
    const double fixed = state(with_psi(7e9)) + double(me::activations(with_psi(7e9)));
    return Values{fixed + 10e9, fixed + 15e9};
  };
  c["002-scores8192"] = [] {
    me::Inputs in = with_psi(7e9);
    in.seq = 8192;
    return Values{double(in.layers * me::scores_layer(in))};
  };
  plain("002-1408", me::crossover(4096, 32));
  plain("002-4352", me::crossover_of_exercise(4096, 32));
  for (std::uint64_t S : {512, 1024, 2048, 4096, 8192}) {
    c["002-ratio-" + std::to_string(S)] = [S] {
      me::Inputs in = with_psi(7e9);
      in.seq = S;
      return Values{double(me::scores_layer(in)) / double(me::linear_layer(in))};
    };
  }
  for (std::uint64_t S : {512, 1024, 2048, 4096, 8192, 16384}) {
    c["002-seqtab-" + std::to_string(S)] = [S] {
      Values v;
      sequence_row(1, S, false, v);
      sequence_row(4, S, true, v);
      return v;
    };
  }
  const auto z = [](std::uint32_t stage) { return state(with_psi(13e9, Optimizer::kAdamW, stage, 8)); };
  plain("002-13b-208", z(0) == 208e9 ? 208e9 : 0);
  plain("002-13b-left", left(80e9, z(0)));
  plain("002-z1", z(1));
  plain("002-z2", z(2));
  plain("002-z3", z(3));
  plain("002-z3left", left(80e9, z(3)));
  const double available = left(40e9, state(with_psi(7e9, Optimizer::kAdamW, 3, 8)) + 2e9);
  plain("002-ex3-avail", available);
  c["002-ex3-B"] = [available] {  // checkpoints every 4 layers: the only interpretation that gives a formula
    me::Inputs in = with_psi(0);
    in.checkpoint_every = 4, in.temporary = in.fragmentation = 0;
    return Values{double(me::largest_batch(in, me::Bytes(available)))};
  };
  plain("002-ex3-tokens", [] {
    RunSpec r = of_length(2048);
    r.micro_batch = 4;
    return double(r.tokens_per_micro_batch());
  }());
  plain("002-eta", 100 * me::efficiency(14'000'000'000, 120'000'000'000));
  plain("002-eta-z3", 100 * me::efficiency(me::equation(with_psi(7e9, Optimizer::kAdamW, 3, 8)).parameters,
                                           120'000'000'000 / 8));
  plain("002-eta-sgd", parameter_share(0, 1, Optimizer::kSgd));
  c["002-eta-z12"] = [] { return Values{parameter_share(1, 8), parameter_share(2, 8)}; };
  for (auto [id, o] : {std::pair{"002-70b-adam", Optimizer::kAdamW},
                       {"002-70b-sgdm", Optimizer::kSgdMomentum},
                       {"002-70b-sgd", Optimizer::kSgd}}) {
    c[id] = [o = o] {
      const double bytes = state(with_psi(70e9, o));
      return Values{double(me::devices_for(me::Bytes(bytes), 80'000'000'000)), bytes};
    };
  }
  c["002-70b-z3"] = [] {
    Values v;
    for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgdMomentum, Optimizer::kSgd})
      v.push_back(double(me::ranks_for_state(with_psi(70e9, o, 3), 80'000'000'000)));
    return v;
  };
  plain("002-code-sgdm", me::state_bytes(Optimizer::kSgdMomentum, 2).total());
  plain("002-code-total", double(me::equation(with_psi(7e9)).total));
  c["002-frag"] = [] {
    return Values{100 * me::fragmentation_ratio(100'000'000'000, 85'000'000'000),
                  100 * me::overhead_ratio(100'000'000'000, 85'000'000'000)};
  };

  const auto lora = [](auto part) { return [part] { return gib(vn::training(gemma_as_stated()).*part); }; };
  c["003-params"] = lora(&vn::Parts::parameters);
  c["003-grads"] = lora(&vn::Parts::gradients);
  c["003-m"] = lora(&vn::Parts::first_moments);
  c["003-v"] = lora(&vn::Parts::second_moments);
  c["003-act"] = lora(&vn::Parts::activations);
  c["003-out"] = lora(&vn::Parts::outputs);
  c["003-total"] = lora(&vn::Parts::total);
  c["003-inf-out"] = [] { return gib(vn::inference(gemma_as_stated()).outputs); };
  c["003-inf"] = [] { return gib(vn::inference(gemma_as_stated()).total); };
  c["003-real"] = [] {
    const ModelSpec& m = models().at("gemma2-27b");
    return Values{double(m.hidden), double(truth(m)), double(m.vocab)};
  };
  c["003-cuda"] = [] { return gib(vn::kCudaMeasured); };
  c["003-src-out"] = [] {
    vn::Inputs in = gemma_as_stated();
    in.vocab = 256000;
    return gib(vn::outputs(in, 4, 2));
  };
  const std::uint64_t transfer = contract::transfer_bytes(models().at("350m"), of_length(2048));
  plain("004-bytes", double(transfer));
  plain("004-ms", contract::transfer_milliseconds(transfer, contract::kPcie4BytesPerSecond));
  plain("004-350M", double(contract::parameters(models().at("350m"))));
  return c;
}

std::map<std::string, Compute> as_written() {
  std::map<std::string, Compute> c;
  for (const auto& [name, m] : models())
    if (name != "350m") c["000-P-" + name] = [&m = m] { return Values{double(contract::parameters(m))}; };
  for (auto [name, S] : {std::pair{"llama2-7b", 2048u}, {"llama3-8b", 8192u}, {"tinyllama-1.1b", 2048u}})
    c[std::string("000-K-") + name] = [&m = models().at(name), S] {
      return Values{double(contract::activation_bytes(m, of_length(S)))};
    };
  c["000-350M-total"] = [] {
    return Values{
        double(contract::estimate(models().at("350m"), of_length(1024), Tier::kHost).total_bytes())};
  };
  return c;
}

const std::map<std::string, std::string>& listed() {
  static const std::map<std::string, std::string> all = {
      {"000-350M-total",
       "the truth is a measurement of another program; what the formula prints is computed as written"},
      {"000-mixed",
       "two sentences that contradict each other; the account of mixed precision is 6 bytes, in "
       "contract_test"},
      {"000-tests", "a count of tests in a document"},
      {"001-params", "calculon_test computes it"},
      {"001-weight", "calculon_test computes it"},
      {"001-moments", "calculon_test computes it"},
      {"001-master", "calculon_test computes it"},
      {"001-opt", "calculon_test computes it"},
      {"001-static", "calculon_test computes it"},
      {"002-7b-real", "an argument without a number; memory-equation notes the gated block's bytes"},
      {"002-takeaway3", "a proportionality in words; the crossover it gets wrong is computed as 002-1408"},
      {"002-scale", "an exponent of a scaling law, which no estimate uses"},
      {"002-exp", "a word: quadratic, not exponential"},
      {"003-bf16-opt", "a habit of frameworks; vram-note notes the bytes of f32 moments"},
      {"004-gate", "a count of tests in a document"},
  };
  return all;
}

}  // namespace trainhost::sources
