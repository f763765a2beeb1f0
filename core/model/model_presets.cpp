// Presets of trainable models: published dimensions, entered by hand. tests/core/model/presets_test.cpp
// compares every parameter count with the published one, which detects a wrong dimension but not a wrong
// theta or eps: compare those with the published config.json.
#include <algorithm>

#include "core/model/presets.hpp"

namespace trainhost {
namespace {

struct Dims {
  std::uint64_t vocab;
  std::uint32_t hidden, layers, heads, kv_heads, head_dim, intermediate;
  std::uint64_t max_positions;
};

ModelSpec model(const char* name, const char* family, const Dims& d, double theta, double eps, bool tied) {
  ModelSpec m;
  m.name = name;
  m.family = family;
  m.vocab = d.vocab, m.hidden = d.hidden, m.layers = d.layers, m.heads = d.heads, m.kv_heads = d.kv_heads;
  m.head_dim = d.head_dim, m.intermediate = d.intermediate, m.max_positions = d.max_positions;
  m.rope_theta = theta, m.norm_eps = eps, m.tied = tied;
  return m;
}

/// A small model learns faster with an initializer_range of about 1/sqrt(H) than with 0.02.
ModelSpec builtin(const Dims& d) {
  ModelSpec m = model("builtin", "llama", d, 1e4, 1e-5, true);
  m.initializer_range = 0.1;
  return m;
}

// low_freq_factor 1, high_freq_factor 4 and 8192 original positions are equal in all of LLaMA 3.1 and 3.2.
ModelSpec llama31(const char* name, const Dims& d, double factor, bool tied = false) {
  ModelSpec m = model(name, "llama", d, 500000, 1e-5, tied);
  m.rope = {RopeKind::kLlama3, factor, 1.0, 4.0, 8192};
  return m;
}

ModelSpec mistral(const char* name, const Dims& d, double theta, std::uint32_t window = 0) {
  ModelSpec m = model(name, "mistral", d, theta, 1e-5, false);
  m.sliding_window = window;
  return m;
}

ModelSpec qwen2(const char* name, const Dims& d, bool tied) {
  ModelSpec m = model(name, "qwen2", d, 1e6, 1e-6, tied);
  m.qkv_bias = true;
  return m;
}

ModelSpec qwen3(const char* name, const Dims& d, bool tied) {
  ModelSpec m = model(name, "qwen3", d, 1e6, 1e-6, tied);
  m.qk_norm = true;
  return m;
}

std::vector<ModelSpec> make_presets() {
  // clang-format off
  // The head is tied in the small models, where V*H is a large part of all parameters.
  std::vector<ModelSpec> all{
      //                                      V       H      L    A    K   D    I      positions
      builtin(                              {256,    96,    4,   3,   3,  32,  256,   2048}),
      model("byte-tiny", "llama",           {256,    256,   4,   4,   4,  64,  704,   2048}, 1e4, 1e-5, true),
      model("stories15m", "llama",          {32000,  288,   6,   6,   6,  48,  768,   2048}, 1e4, 1e-5, true),
      model("llama-42m", "llama",           {32000,  512,   8,   8,   8,  64,  1376,  2048}, 1e4, 1e-5, true),
      model("llama-110m", "llama",          {32000,  768,   12,  12,  12, 64,  2048,  2048}, 1e4, 1e-5, true),
      model("llama-7b", "llama",            {32000,  4096,  32,  32,  32, 128, 11008, 2048}, 1e4, 1e-6, false),
      model("llama-13b", "llama",           {32000,  5120,  40,  40,  40, 128, 13824, 2048}, 1e4, 1e-6, false),
      model("llama-2-7b", "llama",          {32000,  4096,  32,  32,  32, 128, 11008, 4096}, 1e4, 1e-5, false),
      model("llama-2-13b", "llama",         {32000,  5120,  40,  40,  40, 128, 13824, 4096}, 1e4, 1e-5, false),
      model("llama-2-70b", "llama",         {32000,  8192,  80,  64,  8,  128, 28672, 4096}, 1e4, 1e-5, false),
      model("llama-3-8b", "llama",          {128256, 4096,  32,  32,  8,  128, 14336, 8192}, 5e5, 1e-5, false),
      model("llama-3-70b", "llama",         {128256, 8192,  80,  64,  8,  128, 28672, 8192}, 5e5, 1e-5, false),
      model("llama-30b", "llama",           {32000,  6656,  60,  52,  52, 128, 17920, 2048}, 1e4, 1e-6, false),
      model("llama-65b", "llama",           {32000,  8192,  80,  64,  64, 128, 22016, 2048}, 1e4, 1e-5, false),
      model("codellama-7b", "llama",        {32016,  4096,  32,  32,  32, 128, 11008, 16384}, 1e6, 1e-5, false),
      model("codellama-13b", "llama",       {32016,  5120,  40,  40,  40, 128, 13824, 16384}, 1e6, 1e-5, false),
      model("codellama-34b", "llama",       {32000,  8192,  48,  64,  8,  128, 22016, 16384}, 1e6, 1e-5, false),
      model("deepseek-llm-7b", "llama",     {102400, 4096,  30,  32,  32, 128, 11008, 4096}, 1e4, 1e-6, false),
      model("deepseek-coder-1.3b", "llama", {32256,  2048,  24,  16,  16, 128, 5504,  16384}, 1e5, 1e-6, false),
      model("deepseek-coder-6.7b", "llama", {32256,  4096,  32,  32,  32, 128, 11008, 16384}, 1e5, 1e-6, false),
      model("deepseek-coder-33b", "llama",  {32256,  7168,  62,  56,  8,  128, 19200, 16384}, 1e5, 1e-6, false),
      model("open-llama-3b-v2", "llama",    {32000,  3200,  26,  32,  32, 100, 8640,  2048}, 1e4, 1e-6, false),
      llama31("llama-3.1-8b",               {128256, 4096,  32,  32,  8,  128, 14336, 131072}, 8),
      llama31("llama-3.1-70b",              {128256, 8192,  80,  64,  8,  128, 28672, 131072}, 8),
      llama31("llama-3.1-405b",             {128256, 16384, 126, 128, 8,  128, 53248, 131072}, 8),
      llama31("llama-3.3-70b",              {128256, 8192,  80,  64,  8,  128, 28672, 131072}, 8),
      llama31("llama-3.2-1b",               {128256, 2048,  16,  32,  8,  64,  8192,  131072}, 32, true),
      llama31("llama-3.2-3b",               {128256, 3072,  28,  24,  8,  128, 8192,  131072}, 32, true),
      mistral("mistral-7b-v0.1",            {32000,  4096,  32,  32,  8,  128, 14336, 32768}, 1e4, 4096),
      mistral("mistral-7b-v0.2",            {32000,  4096,  32,  32,  8,  128, 14336, 32768}, 1e6),
      mistral("mistral-7b-v0.3",            {32768,  4096,  32,  32,  8,  128, 14336, 32768}, 1e6),
      mistral("mistral-nemo-12b",           {131072, 5120,  40,  32,  8,  128, 14336, 131072}, 1e6),
      mistral("mistral-small-24b",          {131072, 5120,  40,  32,  8,  128, 32768, 32768}, 1e8),
      mistral("mistral-small-22b",          {32768,  6144,  56,  48,  8,  128, 16384, 32768}, 1e6),
      mistral("mistral-large-123b",         {32768,  12288, 88,  96,  8,  128, 28672, 131072}, 1e6),
      mistral("ministral-8b-2410",          {131072, 4096,  36,  32,  8,  128, 12288, 32768}, 1e8),
      qwen2("qwen2.5-0.5b",                 {151936, 896,   24,  14,  2,  64,  4864,  32768}, true),
      qwen2("qwen2.5-1.5b",                 {151936, 1536,  28,  12,  2,  128, 8960,  32768}, true),
      qwen2("qwen2.5-3b",                   {151936, 2048,  36,  16,  2,  128, 11008, 32768}, true),
      qwen2("qwen2.5-7b",                   {152064, 3584,  28,  28,  4,  128, 18944, 32768}, false),
      qwen2("qwen2.5-14b",                  {152064, 5120,  48,  40,  8,  128, 13824, 32768}, false),
      qwen2("qwen2.5-32b",                  {152064, 5120,  64,  40,  8,  128, 27648, 32768}, false),
      qwen2("qwen2.5-72b",                  {152064, 8192,  80,  64,  8,  128, 29568, 32768}, false),
      // With a head of its own, unlike qwen2.5-1.5b.
      qwen2("deepseek-r1-distill-qwen-1.5b", {151936, 1536, 28,  12,  2,  128, 8960,  131072}, false),
      qwen3("qwen3-0.6b",                   {151936, 1024,  28,  16,  8,  128, 3072,  40960}, true),
      qwen3("qwen3-1.7b",                   {151936, 2048,  28,  16,  8,  128, 6144,  40960}, true),
      qwen3("qwen3-4b",                     {151936, 2560,  36,  32,  8,  128, 9728,  40960}, true),
      qwen3("qwen3-8b",                     {151936, 4096,  36,  32,  8,  128, 12288, 40960}, false),
      qwen3("qwen3-14b",                    {151936, 5120,  40,  40,  8,  128, 17408, 40960}, false),
      qwen3("qwen3-32b",                    {151936, 5120,  64,  64,  8,  128, 25600, 40960}, false),
      model("smollm-135m", "llama",         {49152,  576,   30,  9,   3,  64,  1536,  2048}, 1e4, 1e-5, true),
      model("smollm-1.7b", "llama",         {49152,  2048,  24,  32,  32, 64,  8192,  2048}, 1e4, 1e-5, true),
      model("smollm-360m", "llama",         {49152,  960,   32,  15,  5,  64,  2560,  2048}, 1e4, 1e-5, true),
      model("smollm2-135m", "llama",        {49152,  576,   30,  9,   3,  64,  1536,  8192}, 1e5, 1e-5, true),
      model("smollm2-360m", "llama",        {49152,  960,   32,  15,  5,  64,  2560,  8192}, 1e5, 1e-5, true),
      model("smollm2-1.7b", "llama",        {49152,  2048,  24,  32,  32, 64,  8192,  8192}, 1.3e5, 1e-5, true),
      model("tinyllama-1.1b", "llama",      {32000,  2048,  22,  32,  4,  64,  5632,  2048}, 1e4, 1e-5, false),
      model("yi-1.5-9b", "llama",           {64000,  4096,  48,  32,  4,  128, 11008, 4096}, 5e6, 1e-6, false),
      model("yi-34b", "llama",              {64000,  7168,  60,  56,  8,  128, 20480, 4096}, 5e6, 1e-5, false),
      model("yi-1.5-6b", "llama",           {64000,  4096,  32,  32,  4,  128, 11008, 4096}, 5e6, 1e-6, false),
      model("codellama-70b", "llama",       {32016, 8192, 80, 64, 8, 128, 28672, 16384}, 1e6, 1e-5, false),
      model("deepseek-llm-67b", "llama",    {102400, 8192, 95, 64, 8, 128, 22016, 4096}, 1e4, 1e-6, false),
      model("solar-10.7b", "llama",         {32000, 4096, 48, 32, 8, 128, 14336, 4096}, 1e4, 1e-5, false),
      model("falcon3-1b", "llama",          {131072, 2048, 18, 8, 4, 256, 8192, 4096}, 1000042, 1e-6, false),
      model("falcon3-3b", "llama",          {131072, 3072, 22, 12, 4, 256, 9216, 32768}, 1000042, 1e-6, false),
      model("falcon3-7b", "llama",          {131072, 3072, 28, 12, 4, 256, 23040, 32768}, 1000042, 1e-6, false),
      model("falcon3-10b", "llama",         {131072, 3072, 40, 12, 4, 256, 23040, 32768}, 1000042, 1e-6, false),
      model("micro-llama-300m", "llama",    {32000, 1024, 12, 16, 4, 64, 5632, 2048}, 1e4, 1e-5, false),
      llama31("llama-3.1-tulu-3-8b",        {128264, 4096, 32, 32, 8, 128, 14336, 131072}, 8),
      llama31("llama-3.1-tulu-3-70b",       {128264, 8192, 80, 64, 8, 128, 28672, 131072}, 8),
      qwen2("qwen1.5-0.5b",                 {151936, 1024, 24, 16, 16, 64, 2816, 32768}, true),
      qwen2("qwen1.5-1.8b",                 {151936, 2048, 24, 16, 16, 128, 5504, 32768}, false),
      qwen2("qwen1.5-4b",                   {151936, 2560, 40, 20, 20, 128, 6912, 32768}, false),
      qwen2("qwen1.5-7b",                   {151936, 4096, 32, 32, 32, 128, 11008, 32768}, false),
      qwen2("qwen1.5-14b",                  {152064, 5120, 40, 40, 40, 128, 13696, 32768}, false),
      qwen2("qwen1.5-32b",                  {152064, 5120, 64, 40, 8, 128, 27392, 32768}, false),
      qwen2("qwen1.5-72b",                  {152064, 8192, 80, 64, 64, 128, 24576, 32768}, false),
      qwen2("qwen1.5-110b",                 {152064, 8192, 80, 64, 8, 128, 49152, 32768}, false),
      qwen2("codeqwen1.5-7b",               {92416, 4096, 32, 32, 4, 128, 13440, 65536}, false),
  };
  // clang-format on
  // Sorted for `trainhost models`.
  std::sort(all.begin(), all.end(), [](const ModelSpec& a, const ModelSpec& b) { return a.name < b.name; });
  return all;
}

const std::vector<ModelSpec>& model_table() {
  static const std::vector<ModelSpec> all = make_presets();
  return all;
}

}  // namespace

std::span<const ModelSpec> model_presets() { return model_table(); }

const ModelSpec* find_model_preset(std::string_view name) {
  for (const ModelSpec& m : model_table())
    if (m.name == name) return &m;
  return nullptr;
}

const ModelSpec& builtin_model() {
  // Never null: the first row of the table.
  static const ModelSpec& m = *find_model_preset("builtin");
  return m;
}

}  // namespace trainhost
