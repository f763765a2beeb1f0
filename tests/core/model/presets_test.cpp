// core/model/presets: every built-in model has exactly the parameter count of its published checkpoint.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>

#include "core/model/presets.hpp"
#include "core/model/tensors.hpp"

using namespace trainhost;

namespace {

/// Published totals: distinct weights, a tied head counted once. The last rows are trainhost's own models.
// clang-format off
const std::map<std::string, std::uint64_t> kTotals{
    {"llama-7b", 6738415616},      {"llama-13b", 13015864320},   {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},  {"llama-2-70b", 68976648192}, {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},  {"llama-3.1-8b", 8030261248}, {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800}, {"llama-3.2-3b", 3212749824}, {"mistral-7b-v0.1", 7241732096},
    {"qwen2.5-0.5b", 494032768},   {"qwen2.5-3b", 3085938688},   {"qwen2.5-7b", 7615616512},
    {"qwen3-0.6b", 596049920},     {"qwen3-1.7b", 1720574976},   {"smollm-360m", 361821120},
    {"smollm2-360m", 361821120},
    {"llama-3.2-1b", 1235814400},  {"llama-3.3-70b", 70553706496}, {"mistral-7b-v0.3", 7248023552},
    {"mistral-nemo-12b", 12247782400}, {"mistral-small-24b", 23572403200}, {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-14b", 14770033664},  {"qwen2.5-32b", 32763876352}, {"qwen2.5-72b", 72706203648},
    {"qwen3-4b", 4022468096},      {"qwen3-8b", 8190735360},     {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},    {"smollm2-135m", 134515008},  {"smollm2-1.7b", 1711376384},
     {"tinyllama-1.1b", 1100048384}, {"yi-1.5-6b", 6061035520},
    {"llama-30b", 32528943616},    {"llama-65b", 65285660672},   {"codellama-7b", 6738546688},
    {"codellama-13b", 13016028160}, {"codellama-34b", 33743970304}, {"deepseek-llm-7b", 6910365696},
    {"deepseek-coder-1.3b", 1346471936}, {"deepseek-coder-6.7b", 6740512768},
    {"deepseek-coder-33b", 33342991360}, {"open-llama-3b-v2", 3426473600}, {"mistral-7b-v0.2", 7241732096},
    {"mistral-small-22b", 22247282688}, {"mistral-large-123b", 122610069504},
    {"ministral-8b-2410", 8019808256}, {"deepseek-r1-distill-qwen-1.5b", 1777088000},
    {"smollm-135m", 134515008},    {"smollm-1.7b", 1711376384},  {"yi-1.5-9b", 8829407232},
    {"yi-34b", 34388917248},
    {"codellama-70b", 68976910336},
    {"deepseek-llm-67b", 67425001472},
    {"solar-10.7b", 10731524096},
    {"falcon3-1b", 1669408768},
    {"falcon3-3b", 3227655168},
    {"falcon3-7b", 7455550464},
    {"falcon3-10b", 10305653760},
    {"micro-llama-300m", 304636928},
    {"llama-3.1-tulu-3-8b", 8030326784},
    {"llama-3.1-tulu-3-70b", 70553837568},
    {"qwen1.5-0.5b", 463987712},
    {"qwen1.5-1.8b", 1836828672},
    {"qwen1.5-4b", 3950369280},
    {"qwen1.5-7b", 7721324544},
    {"qwen1.5-14b", 14167290880},
    {"qwen1.5-32b", 32512218112},
    {"qwen1.5-72b", 72287920128},
    {"qwen1.5-110b", 111209914368},
    {"codeqwen1.5-7b", 7250284544},
    {"builtin", 256 * 96 + 4 * (2 * 96 + 4 * 96 * 96 + 3 * 96 * 256) + 96},
    {"byte-tiny", 256 * 256 + 4 * (2 * 256 + 4 * 256 * 256 + 3 * 256 * 704) + 256},
    {"stories15m", 32000 * 288 + 6 * (2 * 288 + 4 * 288 * 288 + 3 * 288 * 768) + 288},
    {"llama-42m", 32000 * 512 + 8 * (2 * 512 + 4 * 512 * 512 + 3 * 512 * 1376) + 512},
    {"llama-110m", 32000 * 768 + 12 * (2 * 768 + 4 * 768 * 768 + 3 * 768 * 2048) + 768},
};
// clang-format on

}  // namespace

BOOST_AUTO_TEST_SUITE(presets)

BOOST_AUTO_TEST_CASE(every_preset_has_its_published_number_of_parameters) {
  BOOST_TEST(model_presets().size() == kTotals.size());
  for (const ModelSpec& m : model_presets()) {
    BOOST_REQUIRE_MESSAGE(kTotals.count(m.name), m.name << " has no published total in this test");
    BOOST_TEST(count_parameters(m).total == kTotals.at(m.name), m.name);
  }
}

BOOST_AUTO_TEST_CASE(every_preset_is_a_valid_trainable_model_found_by_its_name) {
  for (const ModelSpec& m : model_presets()) {
    BOOST_CHECK_NO_THROW(validate(m));
    BOOST_TEST(trainable_family(m.family), m.name);
    BOOST_TEST(find_model_preset(m.name) == &m);
  }
  BOOST_TEST(find_model_preset("gpt-5") == nullptr);
  BOOST_TEST(&builtin_model() == find_model_preset("builtin"));
}

BOOST_AUTO_TEST_CASE(names_are_sorted) {
  const auto models = model_presets();
  const auto devices = device_presets();
  BOOST_TEST(std::is_sorted(models.begin(), models.end(), [](auto& a, auto& b) { return a.name < b.name; }));
  BOOST_TEST(
      std::is_sorted(devices.begin(), devices.end(), [](auto& a, auto& b) { return a.name < b.name; }));
}

BOOST_AUTO_TEST_CASE(every_documented_device_has_a_preset) {
  for (const char* name :
       {"a100-40gb",   "a100-80gb",      "h100-80gb",    "h100-pcie-80gb",   "h200-141gb",
        "b200-180gb",  "gb200-186gb",    "mi300x-192gb", "l40s-48gb",        "l4-24gb",
        "a10g-24gb",   "rtx-3060",       "rtx-3090",     "rtx-4060-ti-16gb", "rtx-4080",
        "rtx-4090",    "rtx-5070-ti",    "rtx-5080",     "rtx-5090",         "rtx-6000-ada",
        "rtx-a6000",   "rtx-pro-6000",   "a30-24gb",     "a40-48gb",         "gh200-96gb",
        "h20-96gb",    "mi325x-256gb",   "mi355x-288gb", "t4-16gb",          "v100-16gb",
        "v100-32gb",   "tpu-v5p",        "xeon-8480",    "rtx-4070",         "rtx-4070-ti-super",
        "rtx-2070",    "rtx-2080",       "rtx-2080-ti",  "rtx-3060-ti",      "rtx-3070",
        "rtx-3070-ti", "rtx-3080-10gb",  "rtx-3080-ti",  "rtx-4060",         "rtx-4060-ti-8gb",
        "rtx-5060",    "rtx-5060-ti-8gb"})
    BOOST_TEST((find_device_preset(name) != nullptr), name);
}

BOOST_AUTO_TEST_CASE(device_rates_are_plausible) {
  const auto gib = [](const char* name) {
    return static_cast<double>(find_device_preset(name)->memory_bytes) / (1 << 30);
  };
  BOOST_TEST((gib("h100-80gb") > 79 && gib("h100-80gb") < 79.2));  // 80 GB decimal are 74.5
  BOOST_TEST((gib("rtx-4090") > 23.5 && gib("rtx-4090") < 23.7));
  BOOST_TEST(find_device_preset("h100") == nullptr);
  for (const DevicePreset& d : device_presets()) {
    BOOST_TEST(find_device_preset(d.name) == &d);
    BOOST_TEST(d.memory_bytes >= 8'000'000'000u, d.name);
    BOOST_TEST((d.memory_gbs >= 272 && d.memory_gbs <= 8000), d.name);
    const bool before_bf16 = d.capability > 0 && d.capability < 80;
    BOOST_TEST((d.bf16_tflops == 0) == before_bf16, d.name);
    BOOST_TEST((before_bf16 || (d.bf16_tflops >= 2 * d.tf32_tflops * 0.98 && d.bf16_tflops > 25)), d.name);
    BOOST_TEST((d.fp16_tflops == 0 || before_bf16 || d.fp16_tflops == d.bf16_tflops), d.name);
    BOOST_TEST((d.fp8_tflops == 0 || std::abs(d.fp8_tflops / d.bf16_tflops - 2) < 0.03), d.name);
    BOOST_TEST((d.node == 1) == (d.link_gbs == 0), d.name);
    BOOST_TEST((d.network_gbs <= d.link_gbs && d.host_gbs <= d.memory_gbs), d.name);
    BOOST_TEST((d.multiprocessors != 0) == (d.vendor == "NVIDIA"), d.name);
  }
}

/// Bandwidths and peak rates computed from published hardware figures: bus width in bits * Gbit/s per pin,
/// and multiply-adds per clock of the tensor cores * clock. Agree with the data sheets within 1 %.
BOOST_AUTO_TEST_CASE(device_rates_follow_from_buses_and_clocks) {
  const auto near = [](double a, double b) { return std::abs(a / b - 1) < 0.01; };
  const struct {
    const char* name;
    double bus_bits, gbit_a_pin, units, dense_16_bit_flops_a_clock, boost_ghz;
  } chips[] = {
      {"a100-40gb", 5120, 2.43, 108, 2048, 1.41},    {"a100-80gb", 5120, 3.186, 108, 2048, 1.41},
      {"h100-80gb", 5120, 5.23, 132, 4096, 1.83},    {"h100-pcie-80gb", 5120, 3.125, 114, 4096, 1.62},
      {"l40s-48gb", 384, 18, 142, 1024, 2.49},       {"rtx-3090", 384, 19.5, 82, 512, 1.695},
      {"rtx-4090", 384, 21, 128, 512, 2.52},         {"rtx-5090", 512, 28, 170, 512, 2.407},
      {"rtx-a6000", 384, 16, 84, 1024, 1.8},         {"a10g-24gb", 384, 12.5, 80, 512, 1.71},
      {"l4-24gb", 192, 12.5, 58, 1024, 2.04},        {"mi300x-192gb", 8192, 5.2, 304, 2048, 2.1},
      {"a30-24gb", 3072, 2.43, 56, 2048, 1.44},      {"a40-48gb", 384, 14.5, 84, 1024, 1.74},
      {"gh200-96gb", 6144, 5.21, 132, 4096, 1.83},   {"mi325x-256gb", 8192, 5.86, 304, 2048, 2.1},
      {"mi355x-288gb", 8192, 7.8, 256, 4096, 2.4},   {"rtx-3060", 192, 15, 28, 512, 1.777},
      {"rtx-4060-ti-16gb", 128, 18, 34, 512, 2.535}, {"rtx-4080", 256, 22.4, 76, 512, 2.505},
      {"rtx-5070-ti", 256, 28, 70, 512, 2.452},      {"rtx-5080", 256, 30, 84, 512, 2.617},
      {"rtx-6000-ada", 384, 20, 142, 1024, 2.505},   {"rtx-pro-6000", 512, 28, 188, 1024, 2.617},
      {"rtx-3090-ti", 384, 21, 84, 512, 1.86},       {"rtx-4070", 192, 21, 46, 512, 2.475},
      {"rtx-4070-super", 192, 21, 56, 512, 2.475},   {"rtx-4070-ti", 192, 21, 60, 512, 2.61},
      {"rtx-4070-ti-super", 256, 21, 66, 512, 2.61}, {"rtx-4080-super", 256, 23, 80, 512, 2.55},
      {"rtx-5060-ti-16gb", 128, 28, 36, 512, 2.572}, {"rtx-5070", 192, 28, 48, 512, 2.512},
      {"rtx-2070", 256, 14, 36, 512, 1.62},          {"rtx-2070-super", 256, 14, 40, 512, 1.77},
      {"rtx-2080", 256, 14, 46, 512, 1.71},          {"rtx-2080-super", 256, 15.5, 48, 512, 1.815},
      {"rtx-2080-ti", 352, 14, 68, 512, 1.545},      {"rtx-3060-ti", 256, 14, 38, 512, 1.665},
      {"rtx-3070", 256, 14, 46, 512, 1.725},         {"rtx-3070-ti", 256, 19, 48, 512, 1.77},
      {"rtx-3080-10gb", 320, 19, 68, 512, 1.71},     {"rtx-3080-12gb", 384, 19, 70, 512, 1.71},
      {"rtx-3080-ti", 384, 19, 80, 512, 1.665},      {"rtx-4060", 128, 17, 24, 512, 2.46},
      {"rtx-4060-ti-8gb", 128, 18, 34, 512, 2.535},  {"rtx-5050", 128, 20, 20, 512, 2.572},
      {"rtx-5060", 128, 28, 30, 512, 2.497},         {"rtx-5060-ti-8gb", 128, 28, 36, 512, 2.572},
      {"t4-16gb", 256, 10, 40, 1024, 1.59},          {"v100-16gb", 4096, 1.75, 80, 1024, 1.53},
      {"v100-32gb", 4096, 1.75, 80, 1024, 1.53}};
  for (const auto& c : chips) {
    const DevicePreset& d = *find_device_preset(c.name);
    BOOST_TEST((d.vendor != "NVIDIA" || d.multiprocessors == c.units), c.name);
    BOOST_TEST(near(d.memory_gbs, c.bus_bits * c.gbit_a_pin / 8), c.name << ": memory");
    BOOST_TEST(near(d.fp16_tflops, c.units * c.dense_16_bit_flops_a_clock * c.boost_ghz / 1000),
               c.name << ": products of 16 bits");
  }
}

BOOST_AUTO_TEST_SUITE_END()
