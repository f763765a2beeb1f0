// Inference of the CPU trainer: a forward pass over rows of several sequences with key/value caches
// (core/abi/decode_table.hpp). Not a step program: a program computes in f32 on a fixed number of tokens, and
// generation needs weights in the type of their file and any number of rows. One allocation: weights, caches,
// workspace. Layout and loading: decoder.cpp; arithmetic: decoder_forward.cpp.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/abi/decode_table.hpp"
#include "core/model/model_spec.hpp"
#include "plugins/cpu/engine/thread_pool.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {

extern const abi::DecodeTable kDecodeTable;

/// Matrices are f32 or bfloat16 as DecodeOptions::weight_type says, [out, in].
struct DecoderLayer {
  void *qkv, *o, *gate_up, *down;  // rows q | k | v and gate | up
  float *norm1, *norm2, *qkv_bias, *o_bias, *gate_up_bias, *down_bias, *q_norm, *k_norm;  // null where absent
};

/// Addresses inside the allocation. R rows, S context.
struct DecoderBuffers {
  void *embed, *head;  // the same if the model ties them
  float* final_norm;
  std::vector<DecoderLayer> layers;
  float *keys, *values;  // [layers][sequences][kv_heads][S][D]
  float* rope;           // [S][D]: cos | sin
  float *x, *h;          // [R, H]: the residual stream; normalised rows
  float *qkv, *attn, *gate_up, *act;
  float *rstd, *scores, *panels, *product_work;
  float* ordered;  // [kDotRows, widest input of a product]: x for products with bfloat16
};

class Decoder {
 public:
  /// Throws StatusError TH_E_UNSUPPORTED for a type of weights other than f32 and bf16, TH_E_ARG for zero
  /// sequences, positions or rows, TH_E_HOST_OOM.
  Decoder(const th_host* host, const ModelSpec& model, const abi::DecodeOptions& options,
          const Kernels& kernels = select_kernels());
  ~Decoder();
  Decoder(const Decoder&) = delete;

  /// The bytes that the constructor allocates.
  static abi::DecodeMemory memory(const ModelSpec& model, const abi::DecodeOptions& options,
                                  std::uint32_t threads);

  void load(const th_tensor& t);
  void forward(std::span<const abi::DecodeRow> rows, float* logits);

 private:
  /// Rows of one sequence, with consecutive positions.
  struct Run {
    std::uint32_t first_row, rows, sequence, position;
  };
  struct Target {
    void* data;
    bool matrix;
    std::uint64_t elements;
  };

  void name_tensors();
  void split_into_runs(std::span<const abi::DecodeRow> rows);
  void embed(std::span<const abi::DecodeRow> rows);
  void norm(std::uint64_t rows, const float* x, const float* weight, float* y);
  void linear(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w, const float* bias, bool add,
              const float* x, float* y);
  void multiply_panel(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w, std::uint64_t j,
                      std::uint64_t count, const float* x, float* y, float* work);
  void rotate_and_cache(const Run& run, std::uint32_t row, std::uint32_t layer);
  void attend(std::uint32_t layer);
  void attend_head(const Run& run, std::uint32_t first, std::uint32_t rows, std::uint32_t layer,
                   std::uint32_t kv_head, std::uint32_t worker);
  float* cached(float* cache, std::uint32_t layer, std::uint32_t sequence, std::uint32_t kv_head) const;
  const void* weight_row(const void* w, std::uint64_t element) const;
  template <class F>
  void over_rows(std::uint64_t rows, F&& f);

  const th_host* host_;
  const ModelSpec m_;
  const abi::DecodeOptions options_;
  const bool bf16_;
  const Kernels& kernels_;
  ThreadPool pool_;
  std::byte* block_ = nullptr;
  DecoderBuffers b_;
  std::map<std::string, Target> targets_;  // by the name of the tensor
  std::uint64_t missing_ = 0;              // elements that load() has not got yet
  std::vector<std::uint32_t> lengths_;     // positions in the cache, per sequence
  std::vector<Run> runs_;                  // of the current call
};

}  // namespace trainhost::cpu
