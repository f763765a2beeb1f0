// Device presets: memory as the driver reports it, rates as the vendors publish them. No real device is
// queried.
#include "core/model/presets.hpp"

namespace trainhost {
namespace {

constexpr std::uint64_t kGB = 1'000'000'000;
constexpr std::uint64_t gib(double n) { return static_cast<std::uint64_t>(n * (1 << 30)); }

// Memory of GPUs: what a program can have at most, the "total capacity" of PyTorch's out-of-memory messages
// (cudaMemGetInfo). It is less than the memory of the board, because the driver keeps some, and depends on
// the driver's version by some 100 MiB: of the values in public bug reports of 2023 to 2026 the smallest that
// occurs often. H100 PCIe: as H100 SXM, which has the same total in nvidia-smi (81,559 MiB). Of GH200, H20,
// RTX 3080 12 GB, 3080 Ti, 3090 Ti, 4060 Ti, 4070, 4080, 5060 Ti 16 GB, 5070, 5080 (with their Ti and SUPER),
// 6000 Ada and PRO 6000 no such reports were read: the total of nvidia-smi, less what the driver keeps on the
// nearest device above. Cards of 8 GB: reports of 2025 and 2026 of the RTX 2070 and 2080 SUPER (7.60 GiB),
// 3070 Ti (7.66; older ones of the 3070: 7.76), 4060 (7.60 to 7.63) and Blackwell cards (7.51 to 7.53); the
// others of a generation have the same total in nvidia-smi. TPU and CPU: as advertised.
//
// Rates: published by the vendors; not checked again against their documents on 2026-11-21. Of two published
// figures the smaller is used: f32 accumulation where f16 is faster (GeForce), 95 GB where other documents
// have GiB (TPU v5p). Peak rates: dense (no structured sparsity), f32 accumulation. Links: NVLink, Infinity
// Fabric or ICI, else PCIe; one direction, half of the figure in data sheets. Nodes and networks of the
// vendor's systems: DGX A100 (8 x 200 Gb/s), DGX H100, H200 and B200 (8 x 400 Gb/s), GB200 NVL72, MI300X
// platform, TPU pod (50 Gb/s of data centre network per chip); PCIe cards: up to 8 per board. Host link:
// PCIe 4.0 or 5.0 x16, or NVLink-C2C (half per GPU). CPU: peak rates at base frequency, AMX for bf16, two
// AVX-512 units for f32; memory of eight 64 GB modules. SMs: streaming multiprocessors that are enabled.
// Capability: CUDA compute capability times 10.
const std::vector<DevicePreset>& device_table() {
  // clang-format off
  static const std::vector<DevicePreset> all{
      // name, vendor, full name
      //   memory    GB/s    bf16    tf32   fp32   link   fp16    fp8     node  network host  SMs  capability
      {"a100-40gb", "NVIDIA", "A100 SXM 40 GB",
       gib(39.39),  1555,   312,    156,   19.5,  300,   312,    0,      8,    25,      32,     108, 80},
      {"a100-80gb", "NVIDIA", "A100 SXM 80 GB",
       gib(79.14),  2039,   312,    156,   19.5,  300,   312,    0,      8,    25,      32,     108, 80},
      {"a10g-24gb", "NVIDIA", "A10G",
       gib(22.03),  600,    70,     35,    31.5,  32,    70,     0,      8,    0,       32,     80,  86},
      {"a30-24gb", "NVIDIA", "A30",
       gib(23.49),  933,    165,    82,    10.3,  100,   165,    0,      2,    0,       32,     56,  80},
      {"a40-48gb", "NVIDIA", "A40",
       gib(44.34),  696,    149.7,  74.8,  37.4,  56.25, 149.7,  0,      2,    0,       32,     84,  86},
      {"b200-180gb", "NVIDIA", "B200 SXM 180 GB",
       gib(178.35), 8000,   2250,   1125,  75,    900,   2250,   4500,   8,    50,      64,     148, 100},
      {"gb200-186gb", "NVIDIA", "GB200 NVL72, one GPU",
       gib(184.31), 8000,   2500,   1250,  80,    900,   2500,   5000,   72,   50,      225,    148,  100},
      {"gh200-96gb", "NVIDIA", "GH200 96 GB",
       gib(94.50),  4000,   989.4,  494.7, 66.9,  450,   989.4,  1978.9, 2,    50,      450,    132, 90},
      {"h100-80gb", "NVIDIA", "H100 SXM 80 GB",
       gib(79.10),  3350,   989.4,  494.7, 66.9,  450,   989.4,  1978.9, 8,    50,      64,     132, 90},
      {"h100-pcie-80gb", "NVIDIA", "H100 PCIe 80 GB",
       gib(79.10),  2000,   756,    378,   51.2,  300,   756,    1513,   2,    0,       64,     114, 90},
      {"h20-96gb", "NVIDIA", "H20 96 GB",
       gib(95.00),  4000,   148,    74,    44,    450,   148,    296,    8,    50,      64,     78,  90},
      {"h200-141gb", "NVIDIA", "H200 SXM 141 GB",
       gib(139.72), 4800,   989.4,  494.7, 66.9,  450,   989.4,  1978.9, 8,    50,      64,     132, 90},
      {"l4-24gb", "NVIDIA", "L4",
       gib(22.03),  300,    121,    60,    30.3,  32,    121,    242.5,  8,    0,       32,     58,  89},
      {"l40s-48gb", "NVIDIA", "L40S",
       gib(44.34),  864,    362.05, 183,   91.6,  32,    362.05, 733,    8,    0,       32,     142, 89},
      {"mi300x-192gb", "AMD", "Instinct MI300X",
       gib(191.69), 5300,   1307.4, 653.7, 163.4, 448,   1307.4, 2614.9, 8,    50,      64,     0,   0},
      {"mi325x-256gb", "AMD", "Instinct MI325X",
       gib(255.98), 6000,   1307.4, 653.7, 163.4, 448,   1307.4, 2614.9, 8,    50,      64,     0,   0},
      {"mi355x-288gb", "AMD", "Instinct MI355X",
       gib(287.98), 8000,   2516.6, 0,     157.3, 538,   2516.6, 5033,   8,    50,      64,     0,   0},
      {"rtx-2070", "NVIDIA", "GeForce RTX 2070",
       gib(7.60),   448,    0,      0,     7.5,   16,    29.9,   0,      2,    0,       16,     36,  75},
      {"rtx-2070-super", "NVIDIA", "GeForce RTX 2070 SUPER",
       gib(7.60),   448,    0,      0,     9.1,   25,    36.2,   0,      2,    0,       16,     40,  75},
      {"rtx-2080", "NVIDIA", "GeForce RTX 2080",
       gib(7.60),   448,    0,      0,     10.1,  25,    40.3,   0,      2,    0,       16,     46,  75},
      {"rtx-2080-super", "NVIDIA", "GeForce RTX 2080 SUPER",
       gib(7.60),   496,    0,      0,     11.2,  25,    44.6,   0,      2,    0,       16,     48,  75},
      {"rtx-2080-ti", "NVIDIA", "GeForce RTX 2080 Ti",
       gib(10.56),  616,    0,      0,     13.4,  50,    53.8,   0,      2,    0,       16,     68,  75},
      {"rtx-3060", "NVIDIA", "GeForce RTX 3060 12 GB",
       gib(11.63),  360,    25.5,   12.7,  12.7,  32,    25.5,   0,      2,    0,       32,     28,  86},
      {"rtx-3060-ti", "NVIDIA", "GeForce RTX 3060 Ti",
       gib(7.66),   448,    32.4,   16.2,  16.2,  32,    32.4,   0,      2,    0,       32,     38,  86},
      {"rtx-3070", "NVIDIA", "GeForce RTX 3070",
       gib(7.66),   448,    40.6,   20.3,  20.3,  32,    40.6,   0,      2,    0,       32,     46,  86},
      {"rtx-3070-ti", "NVIDIA", "GeForce RTX 3070 Ti",
       gib(7.66),   608,    43.5,   21.7,  21.7,  32,    43.5,   0,      2,    0,       32,     48,  86},
      {"rtx-3080-10gb", "NVIDIA", "GeForce RTX 3080 10 GB",
       gib(9.64),   760,    59.5,   29.8,  29.8,  32,    59.5,   0,      2,    0,       32,     68,  86},
      {"rtx-3080-12gb", "NVIDIA", "GeForce RTX 3080 12 GB",
       gib(11.63),  912,    61.3,   30.6,  30.6,  32,    61.3,   0,      2,    0,       32,     70,  86},
      {"rtx-3080-ti", "NVIDIA", "GeForce RTX 3080 Ti",
       gib(11.63),  912,    68.2,   34.1,  34.1,  32,    68.2,   0,      2,    0,       32,     80,  86},
      {"rtx-3090", "NVIDIA", "GeForce RTX 3090",
       gib(23.55),  936,    71,     35.6,  35.6,  56.25, 71,     0,      2,    0,       32,     82,  86},
      {"rtx-3090-ti", "NVIDIA", "GeForce RTX 3090 Ti",
       gib(23.55),  1008,   80,     40,    40,    56.25, 80,     0,      2,    0,       32,     84,  86},
      {"rtx-4060", "NVIDIA", "GeForce RTX 4060",
       gib(7.60),   272,    30.2,   15.1,  15.1,  16,    30.2,   60.5,   2,    0,       16,     24,  89},
      {"rtx-4060-ti-16gb", "NVIDIA", "GeForce RTX 4060 Ti 16 GB",
       gib(15.57),  288,    44.1,   22.1,  22.1,  16,    44.1,   88.2,   2,    0,       16,     34,  89},
      {"rtx-4060-ti-8gb", "NVIDIA", "GeForce RTX 4060 Ti 8 GB",
       gib(7.60),   288,    44.1,   22.1,  22.1,  16,    44.1,   88.2,   2,    0,       16,     34,  89},
      {"rtx-4070", "NVIDIA", "GeForce RTX 4070",
       gib(11.62),  504,    58.3,   29.1,  29.1,  32,    58.3,   116.6,  2,    0,       32,     46,  89},
      {"rtx-4070-super", "NVIDIA", "GeForce RTX 4070 SUPER",
       gib(11.62),  504,    71,     35.5,  35.5,  32,    71,     142,    2,    0,       32,     56,  89},
      {"rtx-4070-ti", "NVIDIA", "GeForce RTX 4070 Ti",
       gib(11.62),  504,    80.2,   40.1,  40.1,  32,    80.2,   160.4,  2,    0,       32,     60,  89},
      {"rtx-4070-ti-super", "NVIDIA", "GeForce RTX 4070 Ti SUPER",
       gib(15.57),  672,    88.2,   44.1,  44.1,  32,    88.2,   176.4,  2,    0,       32,     66,  89},
      {"rtx-4080", "NVIDIA", "GeForce RTX 4080",
       gib(15.57),  716.8,  97.5,   48.7,  48.7,  32,    97.5,   195,    2,    0,       32,     76,  89},
      {"rtx-4080-super", "NVIDIA", "GeForce RTX 4080 SUPER",
       gib(15.57),  736,    104.4,  52.2,  52.2,  32,    104.4,  208.9,  2,    0,       32,     80,  89},
      {"rtx-4090", "NVIDIA", "GeForce RTX 4090",
       gib(23.60),  1008,   165.2,  82.6,  82.6,  32,    165.2,  330.3,  8,    0,       32,     128, 89},
      {"rtx-5050", "NVIDIA", "GeForce RTX 5050",
       gib(7.52),   320,    26.3,   13.2,  13.2,  32,    26.3,   52.7,   2,    0,       32,     20,  120},
      {"rtx-5060", "NVIDIA", "GeForce RTX 5060",
       gib(7.52),   448,    38.4,   19.2,  19.2,  32,    38.4,   76.7,   2,    0,       32,     30,  120},
      {"rtx-5060-ti-16gb", "NVIDIA", "GeForce RTX 5060 Ti 16 GB",
       gib(15.45),  448,    47.4,   23.7,  23.7,  32,    47.4,   94.8,   2,    0,       32,     36,  120},
      {"rtx-5060-ti-8gb", "NVIDIA", "GeForce RTX 5060 Ti 8 GB",
       gib(7.52),   448,    47.4,   23.7,  23.7,  32,    47.4,   94.8,   2,    0,       32,     36,  120},
      {"rtx-5070", "NVIDIA", "GeForce RTX 5070",
       gib(11.47),  672,    61.7,   30.9,  30.9,  64,    61.7,   123.5,  2,    0,       64,     48,  120},
      {"rtx-5070-ti", "NVIDIA", "GeForce RTX 5070 Ti",
       gib(15.45),  896,    87.9,   43.9,  43.9,  64,    87.9,   175.8,  2,    0,       64,     70,  120},
      {"rtx-5080", "NVIDIA", "GeForce RTX 5080",
       gib(15.45),  960,    112.6,  56.3,  56.3,  64,    112.6,  225.2,  2,    0,       64,     84,  120},
      {"rtx-5090", "NVIDIA", "GeForce RTX 5090",
       gib(31.36),  1792,   209.5,  104.8, 104.8, 64,    209.5,  419,    8,    0,       64,     170, 120},
      {"rtx-6000-ada", "NVIDIA", "RTX 6000 Ada",
       gib(47.37),  960,    364.2,  182.1, 91.1,  32,    364.2,  728.5,  2,    0,       32,     142, 89},
      {"rtx-a6000", "NVIDIA", "RTX A6000",
       gib(47.40),  768,    154.8,  77.4,  38.7,  56.25, 154.8,  0,      2,    0,       32,     84,  86},
      {"rtx-pro-6000", "NVIDIA", "RTX PRO 6000 Blackwell",
       gib(94.97),  1792,   503.8,  251.9, 126,   64,    503.8,  1007.6, 8,    0,       64,     188, 120},
      {"t4-16gb", "NVIDIA", "Tesla T4",
       gib(14.56),  320,    0,      0,     8.1,   16,    65,     0,      4,    0,       16,     40,  75},
      {"tpu-v5p", "Google", "Cloud TPU v5p, one chip",
       95 * kGB,   2765,   459,    0,     0,     600,   0,      0,      8960, 6.25,    0,      0,  0},
      {"v100-16gb", "NVIDIA", "Tesla V100 SXM2 16 GB",
       gib(15.77),  900,    0,      0,     15.7,  150,   125,    0,      8,    6.25,    16,     80,  70},
      {"v100-32gb", "NVIDIA", "Tesla V100 SXM2 32 GB",
       gib(31.73),  900,    0,      0,     15.7,  150,   125,    0,      8,    6.25,    16,     80,  70},
      {"xeon-8480", "Intel", "Xeon Platinum 8480+, one socket",
       512 * kGB,  307.2,  229,    0,     7.1,   0,     0,      0,      1,    0,       307.2,  0,      0},
  };
  // clang-format on
  return all;
}

}  // namespace

std::span<const DevicePreset> device_presets() { return device_table(); }

const DevicePreset* find_device_preset(std::string_view name) {
  for (const DevicePreset& d : device_table())
    if (d.name == name) return &d;
  return nullptr;
}

}  // namespace trainhost
