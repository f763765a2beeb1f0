// Stream capture and graphs. Work of captured streams is appended to a list; each item stores its
// dependencies on items of other streams, so that a launch can run the items in any order that the captured
// events permit. The seed of the schedule selects the order of every launch.
#include <algorithm>

#include "emulation_state.hpp"

using namespace emu;

namespace emu {
namespace {

void leave_capture(const std::shared_ptr<Capture>& c) {
  for (CUstream_st* s : c->streams) s->capture = nullptr, s->past.clear();
  for (auto& [handle, e] : state().events)
    if (e->capture == c) e->capture = nullptr, e->past.clear(), e->mark = nullptr;
  std::erase(state().captures, c);
}

// True if the origin stream has waited, directly or indirectly, for all work of the other captured streams.
bool all_joined(const Capture& c) {
  for (std::size_t i = 0; i < c.items.size(); ++i) {
    const auto known = c.origin->past.find(c.stream_of[i]);
    std::size_t until = 0;  // number of items of that stream up to and including this one
    for (std::size_t j = 0; j <= i; ++j) until += c.stream_of[j] == c.stream_of[i];
    if (c.stream_of[i] != c.origin && (known == c.origin->past.end() || known->second < until)) return false;
  }
  return true;
}

// The predecessors of every item.
std::vector<std::vector<std::size_t>> predecessors(const Capture& c) {
  std::vector<std::vector<std::size_t>> after(c.items.size());
  for (std::size_t i = 0; i < c.items.size(); ++i) {
    std::map<const CUstream_st*, std::size_t> seen;
    for (std::size_t j = 0; j < i; ++j) {
      const auto known = c.past_of[i].find(c.stream_of[j]);
      if (known != c.past_of[i].end() && ++seen[c.stream_of[j]] <= known->second) after[i].push_back(j);
    }
  }
  return after;
}

// A random topological order. Half of the time the first possible item is next, so that orders stay close to
// the captured one.
std::vector<std::size_t> random_order(const CUgraph_st& g) {
  std::vector<std::size_t> order;
  std::vector<bool> done(g.items.size());
  while (order.size() < g.items.size()) {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < g.items.size() && candidates.size() < 16; ++i)
      if (!done[i] &&
          std::all_of(g.after[i].begin(), g.after[i].end(), [&](std::size_t j) { return done[j]; }))
        candidates.push_back(i);
    const std::size_t next =
        state().random.below(2) ? candidates[0] : candidates[state().random.below(candidates.size())];
    done[next] = true;
    order.push_back(next);
  }
  return order;
}

}  // namespace

bool invalidates_capture() {
  bool invalidated = false;
  for (const auto& c : state().captures)
    if (c->any_thread || c->thread == std::this_thread::get_id()) invalidated = c->invalid = true;
  return invalidated;
}

cudaError_t reject_captured_stream(CUstream_st& s) {
  s.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_item(CUstream_st& s, Item item) {
  Capture& c = *s.capture;
  if (c.invalid) return cudaErrorStreamCaptureInvalidated;
  c.items.push_back(std::move(item));
  c.stream_of.push_back(&s);
  c.past_of.push_back(s.past);
  ++s.past[&s];
  return cudaSuccess;
}

}  // namespace emu

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&](Lock&) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s == &state().null_stream) return cudaErrorStreamCaptureUnsupported;
    if (s->capture) return cudaErrorInvalidValue;
    s->capture = std::make_shared<Capture>();
    s->past.clear();
    s->capture->origin = s, s->capture->thread = std::this_thread::get_id(), s->capture->streams = {s};
    s->capture->any_thread = mode == cudaStreamCaptureModeGlobal;
    state().captures.push_back(s->capture);
    return cudaSuccess;
  });
}

// The capture ends in any case: a call that is made to fail ends it without a graph.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* to) {
  const cudaError_t status = call("cudaStreamEndCapture", [&](Lock&) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!to || !s->capture) return cudaErrorInvalidValue;
    const std::shared_ptr<Capture> c = s->capture;
    *to = nullptr;
    if (c->thread != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
    if (c->origin != s) {
      c->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    const cudaError_t e = c->invalid       ? cudaErrorStreamCaptureInvalidated
                          : all_joined(*c) ? cudaSuccess
                                           : cudaErrorStreamCaptureUnjoined;
    if (e == cudaSuccess) {
      auto g = std::make_unique<CUgraph_st>();
      g->after = predecessors(*c), g->items = std::move(c->items);
      *to = g.get();
      state().graphs.emplace(g.get(), std::move(g));
    }
    leave_capture(c);
    return e;
  });
  Lock lock(state().mutex);
  CUstream_st* s = stream_of(stream);
  if (status != cudaSuccess && s && s->capture && s->capture->origin == s &&
      s->capture->thread == std::this_thread::get_id())
    leave_capture(std::shared_ptr<Capture>(s->capture));
  return status;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&](Lock&) {
    const CUstream_st* s = stream_of(stream);
    if (!s || !status) return s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long flags) {
  return call("cudaGraphInstantiate", [&](Lock&) {
    if (!to || flags != 0 || !state().graphs.contains(graph)) return cudaErrorInvalidValue;
    auto e = std::make_unique<CUgraphExec_st>(CUgraphExec_st{*graph});
    *to = e.get();
    state().execs.emplace(e.get(), std::move(e));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s || !state().execs.contains(exec)) return cudaErrorInvalidResourceHandle;
    if (s->capture)
      return reject_captured_stream(*s);  // child graphs are not emulated; the trainer does not use them
    ++state().statistics.graph_launches, ++s->statistics.graph_launches;
    for (std::size_t i : random_order(exec->graph))
      if (const cudaError_t e = enqueue(lock, *s, exec->graph.items[i]); e != cudaSuccess) return e;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call(
      "cudaGraphExecDestroy",
      [&](Lock&) { return state().execs.erase(exec) ? cudaSuccess : cudaErrorInvalidValue; },
      IfFailing::kFreeAnyway);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call(
      "cudaGraphDestroy",
      [&](Lock&) { return state().graphs.erase(graph) ? cudaSuccess : cudaErrorInvalidValue; },
      IfFailing::kFreeAnyway);
}
}
