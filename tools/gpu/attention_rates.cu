// Attention over whole sequences in bf16: the time of each kind of kernel that the trainer has for a shape
// and this device, and how far the results of the kinds lie apart. Prints one JSON object.
#include <cmath>
#include <sstream>

#include "plugins/cuda/kernels/attention_common.hpp"
#include "tools/gpu/probe_device.hpp"

namespace trainhost::gpu_probe {
namespace {

using cuda::AttentionShape;
using cuda::Bf16;
namespace detail = cuda::attention_detail;

AttentionShape parse(const std::string& word) {
  std::uint32_t n[5] = {};
  std::istringstream in(word);
  std::string number;
  int count = 0;
  for (; count < 5 && std::getline(in, number, ','); ++count) {
    char* end = nullptr;
    n[count] = static_cast<std::uint32_t>(std::strtoul(number.c_str(), &end, 10));
    if (number.empty() || *end != '\0') fail(word + ": expected N,S,A,K,D", 2);
  }
  AttentionShape s{n[0], n[1], n[2], n[3], n[4], 0};
  if (count < 5 || !in.eof() || s.sequences == 0 || s.seq == 0 || s.kv_heads == 0 ||
      s.heads % s.kv_heads != 0 || s.heads == 0 || !detail::mma_supports<Bf16>(s.d))
    fail(
        word +
            ": expected sequences, tokens of each, query heads, key heads that divide them, and numbers of a "
            "head that the tensor-core kernels support",
        2);
  return s;
}

[[maybe_unused]] bool is_9_0() {
  int device = 0, major = 0, minor = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

/// |a - b| / |b| of `bytes` bytes of bf16 numbers in device memory; NaN if a number is not finite.
double distance(const void* a, const void* b, std::size_t bytes, cudaStream_t stream) {
  std::vector<std::uint16_t> x(bytes / 2), y(bytes / 2);
  CHECK(cudaMemcpyAsync(x.data(), a, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaMemcpyAsync(y.data(), b, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  const auto number = [](std::uint16_t half) {
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return static_cast<double>(f);
  };
  double off = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = number(x[i]), w = number(y[i]);
    off += (u - w) * (u - w), all += w * w;
  }
  return std::sqrt(off / std::max(all, 1e-30));
}

struct Kind {
  const char* name;
  cudaError_t (*forward)(cudaStream_t, const AttentionShape&, const Bf16*, Bf16*, float*);
  cudaError_t (*backward)(cudaStream_t, const AttentionShape&, const Bf16*, const Bf16*, const float*,
                          const Bf16*, float*, Bf16*);
};

/// One JSON object per kind. The first kind is what the others are compared with.
void measure(const AttentionShape& s, const std::vector<Kind>& kinds, cudaStream_t stream, int most,
             const char*& comma) {
  const std::size_t rows = std::size_t{s.sequences} * s.seq, in = rows * s.width() * 2,
                    out = rows * s.heads * s.d * 2, statistics = rows * s.heads * sizeof(float);
  const Memory qkv(in, Memory::kDevice), d_o(out, Memory::kDevice), lse(statistics, Memory::kDevice),
      delta(statistics, Memory::kDevice), first_o(out, Memory::kDevice), first_dqkv(in, Memory::kDevice),
      o(out, Memory::kDevice), dqkv(in, Memory::kDevice);
  fill(qkv.at, in, 2, stream), fill(d_o.at, out, 2, stream);
  const double pairs = static_cast<double>(s.sequences) * s.heads * s.seq * (s.seq + 1.0) / 2;
  for (const Kind& kind : kinds) {
    const bool first = &kind == kinds.data();
    auto* to_o = static_cast<Bf16*>(first ? first_o.at : o.at);
    auto* to_dqkv = static_cast<Bf16*>(first ? first_dqkv.at : dqkv.at);
    // NaN: what a kernel leaves out shows in the distance.
    CHECK(cudaMemsetAsync(to_o, 0xff, out, stream));
    CHECK(cudaMemsetAsync(to_dqkv, 0xff, in, stream));
    const auto* input = static_cast<const Bf16*>(qkv.at);
    auto* sums = static_cast<float*>(lse.at);
    const double forward = best_seconds(
        stream, [&] { CHECK(kind.forward(stream, s, input, to_o, sums)); }, most);
    const double backward = best_seconds(
        stream,
        [&] {
          CHECK(kind.backward(stream, s, static_cast<const Bf16*>(d_o.at),
                              static_cast<const Bf16*>(first_o.at), sums, input,
                              static_cast<float*>(delta.at), to_dqkv));
        },
        most);
    const double apart = distance(to_o, first_o.at, out, stream),
                 gradients_apart = distance(to_dqkv, first_dqkv.at, in, stream);
    // JSON has no NaN.
    const auto shown = [](double x) { return std::isfinite(x) ? x : 1e30; };
    std::printf(
        "%s{\"kernels\": \"%s\", \"sequences\": %u, \"seq\": %u, \"heads\": %u, \"kv_heads\": %u, "
        "\"d\": %u, \"forward_s\": %.6g, \"backward_s\": %.6g, \"forward_flops_per_s\": %.6g, "
        "\"backward_flops_per_s\": %.6g, \"distance\": %.3g, \"gradient_distance\": %.3g}",
        comma, kind.name, s.sequences, s.seq, s.heads, s.kv_heads, s.d, forward, backward,
        4 * s.d * pairs / forward, 10 * s.d * pairs / backward, shown(apart), shown(gradients_apart));
    comma = ", ";
  }
}

}  // namespace

int attention_rates(const std::vector<std::string>& words) {
  std::vector<AttentionShape> shapes;
  const int most = std::atoi(words[0].c_str());  // calls of a round
  if (most < 1) fail("attention: expected the largest number of calls of a round, not " + words[0], 2);
  for (std::size_t i = 1; i < words.size(); ++i) shapes.push_back(parse(words[i]));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("{\"attention\": [");
  const char* comma = "";
  for (const AttentionShape& s : shapes) {
    std::vector<Kind> kinds = {{"mma", detail::mma_forward<Bf16>, detail::mma_backward<Bf16>}};
#ifdef TRAINHOST_CUDA_WGMMA
    if (is_9_0() && detail::wgmma_supports(s.d))
      kinds.push_back({"wgmma", detail::wgmma_forward, detail::wgmma_backward});
#endif
    measure(s, kinds, stream, most, comma);
  }
  std::printf("]}\n");
  CHECK(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace trainhost::gpu_probe
