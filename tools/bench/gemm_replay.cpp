// Upper limit of the speed of a trainer on OpenBLAS: times every matrix product of one LLaMA training step
// (forward, input gradient, weight gradient; attention in causal blocks as in flash attention; head in chunks of
// tokens with softmax and cross-entropy) and one AdamW pass, on constant data. Without norms, rotation, residuals
// and clipping. Only a trainer with its own matrix products can be faster.
//   gemm_replay LIBRARY THREADS REPEATS H L A I V B S CHUNK,CHUNK,...
// Prints one JSON object per chunk size: ms of every repeat, and the parts of the best one.
#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                       float*, int);
Sgemm sgemm;
void (*set_threads)(int);
enum { kRow = 101, kN = 111, kT = 112 };  // CBLAS: row-major, not transposed, transposed
constexpr int kQueries = 128;             // query rows of one attention block

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Shape {
  int H, L, A, I, V, B, S;
  int D() const { return H / A; }
  int M() const { return B * S; }  // tokens per step
  /// The head is tied, so the embedding counts once.
  std::size_t parameters() const {
    return std::size_t(L) * (4ul * H * H + 3ul * H * I + 2ul * H) + std::size_t(V) * H + H;
  }
};

struct Buffers {
  std::vector<float> x, w, y;                   // input, weight and output of any linear layer
  std::vector<float> head, head_grad, logits;   // [V,H], [V,H], [chunk,V]
  std::vector<float> p, g, m, v;                // one element per parameter
  std::vector<std::vector<float>> scores, out;  // per thread: [kQueries,S]
  Buffers(const Shape& s, int chunk, int threads)
      : w(std::size_t(s.H) * std::max(3 * s.H, s.I), .01f),
        head(std::size_t(s.V) * s.H, .01f),
        head_grad(head.size(), 0.f),
        logits(std::size_t(chunk) * s.V, .1f),
        p(s.parameters(), .1f),
        g(p.size(), .1f),
        m(p.size(), 0.f),
        v(p.size(), .1f),
        scores(threads, std::vector<float>(std::size_t(kQueries) * s.S)),
        out(scores) {
    std::size_t widest = std::max({std::size_t(s.M()) * std::max(s.I, 3 * s.H), w.size()});
    x.assign(widest, .01f), y.assign(widest, 0.f);
  }
};

/// y[M,n] = x[M,k] w[n,k]^T, and its two gradients.
void linear(Buffers& b, int M, int n, int k) {
  sgemm(kRow, kN, kT, M, n, k, 1, b.x.data(), k, b.w.data(), k, 0, b.y.data(), n);
  sgemm(kRow, kN, kN, M, k, n, 1, b.y.data(), n, b.w.data(), k, 0, b.x.data(), k);
  sgemm(kRow, kT, kN, n, k, M, 1, b.y.data(), n, b.x.data(), k, 0, b.w.data(), k);
}

/// One head of one sequence: scores and output in the forward pass; recomputed scores, dP, dV, dQ, dK in the
/// backward pass (2 + 5 products).
void attention_head(const Shape& s, const float* q, float* p, float* o) {
  const int H = s.H, D = s.D();
  for (int q0 = 0; q0 < s.S; q0 += kQueries) {
    int keys = std::min(s.S, q0 + kQueries), rows = std::min(kQueries, s.S - q0);
    sgemm(kRow, kN, kT, rows, keys, D, 1, q, H, q, H, 0, p, keys);
    sgemm(kRow, kN, kN, rows, D, keys, 1, p, keys, q, H, 0, o, D);
    sgemm(kRow, kN, kT, rows, keys, D, 1, q, H, q, H, 0, p, keys);
    sgemm(kRow, kN, kT, rows, keys, D, 1, q, H, q, H, 0, o, keys);
    sgemm(kRow, kT, kN, keys, D, rows, 1, p, keys, q, H, 0, o, D);
    sgemm(kRow, kN, kN, rows, D, keys, 1, p, keys, q, H, 0, o, D);
    sgemm(kRow, kT, kN, keys, D, rows, 1, p, keys, q, H, 0, o, D);
  }
}

/// Softmax, loss and its gradient, in place.
void cross_entropy_row(float* r, int V, int M) {
  float top = r[0], sum = 0;
  for (int j = 0; j < V; j++) top = std::max(top, r[j]);
  for (int j = 0; j < V; j++) {
    float e = expf(r[j] - top);
    r[j] = e;
    sum += e;
  }
  float k = 1.f / (sum * M);
  for (int j = 0; j < V; j++) r[j] *= k;
}

void head(const Shape& s, Buffers& b, int chunk) {
  for (int t0 = 0; t0 < s.M(); t0 += chunk) {
    int n = std::min(chunk, s.M() - t0);
    sgemm(kRow, kN, kT, n, s.V, s.H, 1, b.x.data(), s.H, b.head.data(), s.H, 0, b.logits.data(), s.V);
#pragma omp parallel for
    for (int i = 0; i < n; i++) cross_entropy_row(b.logits.data() + std::size_t(i) * s.V, s.V, s.M());
    sgemm(kRow, kN, kN, n, s.H, s.V, 1, b.logits.data(), s.V, b.head.data(), s.H, 0, b.x.data(), s.H);
    sgemm(kRow, kT, kN, s.V, s.H, n, 1, b.logits.data(), s.V, b.x.data(), s.H, 1, b.head_grad.data(), s.H);
  }
}

void adamw(Buffers& b) {
  float *p = b.p.data(), *g = b.g.data(), *m = b.m.data(), *v = b.v.data();
  std::size_t n = b.p.size();
#pragma omp parallel for simd
  for (std::size_t i = 0; i < n; i++) {
    m[i] = .9f * m[i] + .1f * g[i];
    v[i] = .95f * v[i] + .05f * g[i] * g[i];
    p[i] -= 1e-4f * (m[i] / (sqrtf(v[i]) + 1e-8f) + .1f * p[i]);
    g[i] = 0;
  }
}

struct Times {
  double linear, attention, head, adamw, total;
};

Times step(const Shape& s, Buffers& b, int threads, int chunk) {
  std::fill(b.x.begin(), b.x.end(), .01f);  // else repeated products would overflow
  std::fill(b.w.begin(), b.w.end(), .01f);
  double t0 = now_ms();
  set_threads(threads);
  for (int l = 0; l < s.L; l++) {
    linear(b, s.M(), 3 * s.H, s.H);
    linear(b, s.M(), s.H, s.H);
    linear(b, s.M(), s.I, s.H);
    linear(b, s.M(), s.I, s.H);
    linear(b, s.M(), s.H, s.I);
  }
  double t1 = now_ms();
  set_threads(1);
  for (int l = 0; l < s.L; l++) {
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < s.B * s.A; i++) {
      int t = omp_get_thread_num();
      attention_head(s, b.x.data() + std::size_t(i % s.A) * s.D(), b.scores[t].data(), b.out[t].data());
    }
  }
  double t2 = now_ms();
  set_threads(threads);
  head(s, b, chunk);
  double t3 = now_ms();
  adamw(b);
  double t4 = now_ms();
  return {t1 - t0, t2 - t1, t3 - t2, t4 - t3, t4 - t0};
}

void replay(const Shape& s, int threads, int repeats, int chunk, const char* core) {
  chunk = std::min(chunk, s.M());
  Buffers b(s, chunk, threads);
  Times best{};
  printf("{\"core\":\"%s\",\"threads\":%d,\"parameters\":%zu,\"tokens\":%d,\"head_chunk\":%d,\"step_ms\":[",
         core, threads, s.parameters(), s.M(), chunk);
  for (int i = 0; i < repeats; i++) {
    Times t = step(s, b, threads, chunk);
    if (i == 0 || t.total < best.total) best = t;
    printf("%s%.3f", i ? "," : "", t.total);
  }
  printf("],\"linear_ms\":%.2f,\"attention_ms\":%.2f,\"head_ms\":%.2f,\"adamw_ms\":%.2f}\n", best.linear,
         best.attention, best.head, best.adamw);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 12)
    return fprintf(stderr, "usage: gemm_replay LIBRARY THREADS REPEATS H L A I V B S CHUNKS\n"), 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  auto core = reinterpret_cast<char* (*)()>(dlsym(library, "openblas_get_corename"));
  if (!sgemm || !set_threads || !core) return fprintf(stderr, "%s is not OpenBLAS\n", argv[1]), 1;
  int n[9];
  for (int i = 0; i < 9; i++) n[i] = atoi(argv[2 + i]);
  omp_set_num_threads(n[0]);
  const Shape shape{n[2], n[3], n[4], n[5], n[6], n[7], n[8]};
  for (char* c = argv[11]; *c;) {
    int chunk = int(strtol(c, &c, 10));
    if (chunk < 1) return fprintf(stderr, "chunk sizes are positive: %s\n", argv[11]), 2;
    if (*c == ',') c++;
    replay(shape, n[0], n[1], chunk, core());
  }
}
