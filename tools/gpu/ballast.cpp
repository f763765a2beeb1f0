// The instrument of tools/gpu: what a device gives without the trainer, and memory held from outside it.
// Prints JSON lines. Commands:
// - free: free and total bytes, once at the start and once more for every line read, until stdin closes. One
//   process, so that its own context is in every figure and cancels out of their differences.
// - ballast LEAVE: takes all but LEAVE bytes, says so, and holds them until stdin closes.
// - rates [M,N,K...]: copies inside the device and over the bus, and the three products of linear layers with
//   M tokens, N outputs and K inputs.
// - attention CALLS N,S,A,K,D...: the kernels of attention (attention_rates.cu), at most CALLS calls per
//   round; N sequences of S tokens, A query heads and K key heads of D numbers.
// - tf32: how a TF32 product rounds its operands.
// - nccl: the operations of NCCL that the trainer uses, in a communicator of one rank.
//
// Every call is checked: a failure is one line on stderr and exit code 1 (2: the words are wrong).
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/common/nccl_library.hpp"
#include "tools/gpu/probe_device.hpp"

using namespace trainhost::gpu_probe;

namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 30, kBusBytes = std::size_t{256} << 20,
                      kWorkspace = std::size_t{32} << 20;

void say_free() {
  std::size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  std::printf("{\"free_bytes\": %zu, \"total_bytes\": %zu}\n", free, total);
  std::fflush(stdout);
}

struct Type {
  const char* name;
  cudaDataType_t data;
  cublasComputeType_t compute;
  std::size_t bytes;
};
constexpr Type kTypes[] = {{"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
                           {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
                           {"fp32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4}};

struct Shape {
  unsigned long long m, n, k;
};

/// The products of a linear layer as the trainer has them (engine/gemm.hpp), and as cuBLAS sees them:
/// column-major left^op [out rows, sum] times right^op [sum, out columns]. The result has the type of the
/// operands, dw is f32.
enum Product { kForward, kDx, kDw };
constexpr const char* kProductNames[] = {"forward", "dx", "dw"};

/// Calls cublasLtMatmul for one product; owns its descriptors.
class Multiply {
 public:
  Multiply(cublasLtHandle_t lt, const Type& t, Product product, const Shape& s, const Memory& work)
      : lt_(lt), work_(work) {
    const auto [m, n, k] = s;
    const bool forward = product == kForward, dw = product == kDw;
    // y^T[n,m] = w[n,k] x[m,k]^T; dx^T[k,m] = w^T[k,n] dy^T[n,m]; dw^T[k,n] = x^T[k,m] dy[m,n].
    const cublasOperation_t op_left = forward ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_right = dw ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(cublasLtMatmulDescCreate(&op_, t.compute, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(op_, CUBLASLT_MATMUL_DESC_TRANSA, &op_left, sizeof op_left));
    CHECK(cublasLtMatmulDescSetAttribute(op_, CUBLASLT_MATMUL_DESC_TRANSB, &op_right, sizeof op_right));
    left_ = layout(t.data, k, dw ? m : n);        // x of dw, else w
    right_ = layout(t.data, forward ? k : n, m);  // x of forward, else dy
    out_ = layout(dw ? CUDA_R_32F : t.data, forward ? n : k, dw ? n : m);
    cublasLtMatmulPreference_t preference;
    const std::size_t room = kWorkspace;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                               sizeof room));
    int count = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(lt, op_, left_, right_, out_, out_, preference, 1, &found_, &count));
    if (count == 0) fail("cublasLt offers no algorithm for a product");
    CHECK(cublasLtMatmulPreferenceDestroy(preference));
  }
  ~Multiply() {
    for (cublasLtMatrixLayout_t l : {left_, right_, out_}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(op_);
  }
  Multiply(const Multiply&) = delete;

  void run(cudaStream_t s, const Memory& left, const Memory& right, const Memory& out) const {
    const float one = 1, zero = 0;
    CHECK(cublasLtMatmul(lt_, op_, &one, left.at, left_, right.at, right_, &zero, out.at, out_, out.at, out_,
                         &found_.algo, work_.at, kWorkspace, s));
  }

 private:
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, unsigned long long rows,
                                       unsigned long long columns) {
    cublasLtMatrixLayout_t l;
    CHECK(cublasLtMatrixLayoutCreate(&l, type, rows, columns, static_cast<long long>(rows)));
    return l;
  }

  cublasLtHandle_t lt_;
  const Memory& work_;
  cublasLtMatmulDesc_t op_{};
  cublasLtMatrixLayout_t left_{}, right_{}, out_{};
  cublasLtMatmulHeuristicResult_t found_{};
};

/// Operations a second of a product of random numbers with the first algorithm offered.
double product_rate(cublasLtHandle_t lt, cudaStream_t s, const Type& t, Product product, const Shape& shape,
                    const Memory& work) {
  const auto [m, n, k] = shape;
  const std::size_t left_bytes = (product == kDw ? m : n) * k * t.bytes;
  const std::size_t right_bytes = m * (product == kForward ? k : n) * t.bytes;
  const std::size_t out_bytes = product == kForward ? m * n * t.bytes
                                : product == kDx    ? m * k * t.bytes
                                                    : n * k * 4;
  Memory left(left_bytes, Memory::kDevice), right(right_bytes, Memory::kDevice),
      out(out_bytes, Memory::kDevice);
  fill(left.at, left_bytes, t.bytes, s);
  fill(right.at, right_bytes, t.bytes, s);
  const Multiply multiply(lt, t, product, shape, work);
  const double seconds = best_seconds(s, [&] { multiply.run(s, left, right, out); });
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
}

/// Products with one are the rounded operands, so three of them tell the three ways of rounding apart. TF32
/// keeps 10 of the 23 bits of the fraction, so 0x1000 is half a unit.
int tf32() {
  constexpr unsigned kTieDown = 0x3f801000, kTieUp = 0x3f803000, kAbove = 0x3f801800;
  constexpr Shape shape{64, 64, 64};
  cudaStream_t s;
  cublasLtHandle_t lt;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK(cublasLtCreate(&lt));
  const Memory work(kWorkspace, Memory::kDevice);
  constexpr std::size_t bytes = 64 * 64 * sizeof(float);
  const Memory left(bytes, Memory::kDevice), right(bytes, Memory::kDevice), out(bytes, Memory::kDevice);
  std::vector<float> w(64 * 64), x(64 * 64), y(64 * 64);
  const unsigned bits[] = {kTieDown, kTieUp, kAbove};
  for (std::size_t i = 0; i < 3; ++i) std::memcpy(&x[i * 64], &bits[i], sizeof bits[i]);
  w[0] = 1;
  CHECK(cudaMemcpyAsync(left.at, w.data(), bytes, cudaMemcpyHostToDevice, s));
  CHECK(cudaMemcpyAsync(right.at, x.data(), bytes, cudaMemcpyHostToDevice, s));
  {
    const Multiply multiply(lt, kTypes[1], kForward, shape, work);
    multiply.run(s, left, right, out);
  }
  CHECK(cudaMemcpyAsync(y.data(), out.at, bytes, cudaMemcpyDeviceToHost, s));
  CHECK(cudaStreamSynchronize(s));
  unsigned got[3];  // y[i][0] = x[i][0] * w[0][0]
  for (std::size_t i = 0; i < 3; ++i) std::memcpy(&got[i], &y[i * 64], sizeof got[i]);
  const auto is = [&](unsigned a, unsigned b, unsigned c) {
    return got[0] == a && got[1] == b && got[2] == c;
  };
  const char* rounding = is(0x3f802000, 0x3f804000, 0x3f802000)   ? "nearest, ties away from zero"
                         : is(0x3f800000, 0x3f804000, 0x3f802000) ? "nearest, ties to even"
                         : is(0x3f800000, 0x3f802000, 0x3f800000) ? "toward zero"
                                                                  : "unknown";
  std::printf("{\"rounding\": \"%s\", \"bits\": [%u, %u, %u]}\n", rounding, got[0], got[1], got[2]);
  CHECK(cublasLtDestroy(lt));
  CHECK(cudaStreamDestroy(s));
  return 0;
}

/// Bytes a second from host to device, back, and of both directions together while both are busy.
void bus_rates(double& up, double& down, double& both) {
  Memory host_up(kBusBytes, Memory::kPinned), host_down(kBusBytes, Memory::kPinned);
  Memory device_up(kBusBytes, Memory::kDevice), device_down(kBusBytes, Memory::kDevice);
  cudaStream_t s[2];
  cudaEvent_t done;
  for (cudaStream_t& one : s) CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  auto copy_up = [&] {
    CHECK(cudaMemcpyAsync(device_up.at, host_up.at, kBusBytes, cudaMemcpyHostToDevice, s[0]));
  };
  auto copy_down = [&](cudaStream_t in) {
    CHECK(cudaMemcpyAsync(host_down.at, device_down.at, kBusBytes, cudaMemcpyDeviceToHost, in));
  };
  const double bytes = static_cast<double>(kBusBytes);
  up = bytes / best_seconds(s[0], copy_up);
  down = bytes / best_seconds(s[1], [&] { copy_down(s[1]); });
  both = 2 * bytes /
         best_seconds(s[0], [&] {  // the first stream waits for the second, so that its time is that of both
           copy_down(s[1]), copy_up();
           CHECK(cudaEventRecord(done, s[1]));
           CHECK(cudaStreamWaitEvent(s[0], done, 0));
         });
  CHECK(cudaEventDestroy(done));
  for (cudaStream_t one : s) CHECK(cudaStreamDestroy(one));
}

int rates(const std::vector<Shape>& shapes) {
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  std::size_t free = 0, total = 0;
  CHECK(cudaGetDeviceProperties(&p, 0));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaMemGetInfo(&free, &total));
  std::printf(
      "{\"device\": \"%s\", \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"driver_cuda\": %d, "
      "\"runtime_cuda\": %d, "
      "\"cublaslt\": %zu, \"free_bytes\": %zu, \"total_bytes\": %zu",
      p.name, p.major, p.minor, p.multiProcessorCount, driver, runtime, cublasLtGetVersion(), free, total);
  cudaStream_t s;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  {
    const std::size_t bytes = std::min(kCopyBytes, free / 4);
    Memory from(bytes, Memory::kDevice), to(bytes, Memory::kDevice);
    const double seconds =
        best_seconds(s, [&] { CHECK(cudaMemcpyAsync(to.at, from.at, bytes, cudaMemcpyDeviceToDevice, s)); });
    std::printf(", \"device_copy_bytes_per_s\": %.6g",
                2 * static_cast<double>(bytes) / seconds);  // read and written
  }
  double up = 0, down = 0, both = 0;
  bus_rates(up, down, both);
  std::printf(", \"h2d_bytes_per_s\": %.6g, \"d2h_bytes_per_s\": %.6g, \"both_bytes_per_s\": %.6g", up, down,
              both);
  std::printf(", \"products\": [");
  cublasLtHandle_t lt;
  CHECK(cublasLtCreate(&lt));
  const Memory work(kWorkspace, Memory::kDevice);
  const char* comma = "";
  for (const Type& t : kTypes)
    for (const Shape& shape : shapes)
      for (const Product product : {kForward, kDx, kDw}) {
        std::printf(
            "%s{\"precision\": \"%s\", \"product\": \"%s\", \"m\": %llu, \"n\": %llu, \"k\": %llu, "
            "\"flops_per_s\": %.6g}",
            comma, t.name, kProductNames[product], shape.m, shape.n, shape.k,
            product_rate(lt, s, t, product, shape, work));
        comma = ", ";
      }
  std::printf("]}\n");
  CHECK(cublasLtDestroy(lt));
  CHECK(cudaStreamDestroy(s));
  return 0;
}

/// Small pieces at the end: large ones fail where the free memory is cut up. Never less than `leave` stays
/// free.
int ballast(std::size_t leave) {
  std::size_t free = 0, total = 0, held = 0;
  for (std::size_t piece = std::size_t{1} << 30; piece >= std::size_t{2} << 20;) {
    CHECK(cudaMemGetInfo(&free, &total));
    void* at = nullptr;
    if (free < leave + piece || cudaMalloc(&at, piece) != cudaSuccess) {
      cudaGetLastError();  // refused: a smaller piece is tried
      piece /= 2;
    } else {
      held += piece;
    }
  }
  CHECK(cudaMemGetInfo(&free, &total));
  std::printf("{\"held_bytes\": %zu, \"free_bytes\": %zu, \"asked_bytes\": %zu}\n", held, free, leave);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;  // the driver gives everything back with the process
}

/// One rank gets its own elements from every operation. The communicator does not block, as the trainer's.
int nccl_of_one_rank() {
  namespace nccl = trainhost::cuda::nccl;
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const nccl::Library* found = nullptr;
  try {
    found = &nccl::library();
  } catch (const trainhost::abi::StatusError& e) {
    fail(e.what());
  }
  const nccl::Functions& f = found->f;
  nccl::Comm comm = nullptr;
  const auto complete = [&](nccl::Result r, const char* what) {
    for (int i = 0; r == nccl::Result::kInProgress && i < 60000; ++i) {
      if (f.ncclCommGetAsyncError(comm, &r) != nccl::Result::kSuccess) fail(std::string(what) + ": no state");
      ::usleep(1000);
    }
    if (r != nccl::Result::kSuccess) fail(std::string(what) + ": " + f.ncclGetErrorString(r));
  };
  nccl::UniqueId id;
  nccl::Config config;
  complete(f.ncclGetUniqueId(&id), "ncclGetUniqueId");
  complete(f.ncclCommInitRankConfig(&comm, 1, id, 0, &config), "ncclCommInitRankConfig");
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000) - 500.0f;
  float *from = nullptr, *to = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&from, kCount * sizeof(float)));
  CHECK(cudaMalloc(&to, kCount * sizeof(float)));
  bool right = true;
  const auto run = [&](const char* what, auto&& start) {
    std::vector<float> back(kCount);
    CHECK(cudaMemcpyAsync(from, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(to, 0xff, kCount * sizeof(float), stream));
    complete(f.ncclGroupStart(), "ncclGroupStart");
    complete(start(), what);
    complete(f.ncclGroupEnd(), what);
    CHECK(cudaMemcpyAsync(back.data(), to, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    right = right && std::memcmp(back.data(), values.data(), kCount * sizeof(float)) == 0;
  };
  run("ncclAllReduce",
      [&] { return f.ncclAllReduce(from, to, kCount, nccl::Type::kF32, nccl::Sum::kSum, comm, stream); });
  run("ncclReduceScatter",
      [&] { return f.ncclReduceScatter(from, to, kCount, nccl::Type::kF32, nccl::Sum::kSum, comm, stream); });
  run("ncclReduce",
      [&] { return f.ncclReduce(from, to, kCount, nccl::Type::kF32, nccl::Sum::kMax, 0, comm, stream); });
  run("ncclAllGather", [&] { return f.ncclAllGather(from, to, kCount, nccl::Type::kF32, comm, stream); });
  run("ncclBroadcast",
      [&] { return f.ncclBroadcast(from, to, kCount * sizeof(float), nccl::Type::kU8, 0, comm, stream); });
  complete(f.ncclCommFinalize(comm), "ncclCommFinalize");
  complete(f.ncclCommDestroy(comm), "ncclCommDestroy");
  std::printf("{\"version\": \"%s\", \"right\": %s}\n", found->text().c_str(), right ? "true" : "false");
  return 0;
}

[[noreturn]] void usage() {
  fail(
      "expected: free | ballast LEAVE_BYTES | rates [M,N,K ...] | attention CALLS N,S,A,K,D ... | tf32 | "
      "nccl",
      2);
}

/// One number that ends at `end`.
unsigned long long number(const char*& at, char end) {
  char* rest = nullptr;
  const unsigned long long n = std::strtoull(at, &rest, 10);
  if (rest == at || *rest != end || *at == '-') usage();
  at = end ? rest + 1 : rest;
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "free" && argc == 2) {
    say_free();
    for (std::string line; std::getline(std::cin, line);) say_free();
    return 0;
  }
  if (what == "ballast" && argc == 3) {
    const char* at = argv[2];
    return ballast(number(at, '\0'));
  }
  if (what == "tf32" && argc == 2) return tf32();
  if (what == "nccl" && argc == 2) return nccl_of_one_rank();
  if (what == "attention" && argc > 3) return attention_rates({argv + 2, argv + argc});
  if (what != "rates") usage();
  std::vector<Shape> shapes;
  for (int i = 2; i < argc; ++i) {
    const char* at = argv[i];
    Shape s{};
    s.m = number(at, ','), s.n = number(at, ','), s.k = number(at, '\0');
    if (s.m == 0 || s.n == 0 || s.k == 0) usage();
    shapes.push_back(s);
  }
  if (shapes.empty())
    shapes = {{8192, 8192, 8192},
              {16384, 1024, 1024},
              {16384, 2816, 1024},
              {16384, 2048, 2048},
              {16384, 5632, 2048}};
  return rates(shapes);
}
