// The runtime calls for streams, events and host functions.
#include <algorithm>

#include "emulation_state.hpp"

using namespace emu;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* to, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&](Lock&) {
    if (!to || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto s = std::make_unique<CUstream_st>();
    s->number = ++state().streams_made, s->flags = flags, s->device = current_device();
    *to = s.get();
    state().streams.emplace(s.get(), std::move(s));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call(
      "cudaStreamDestroy",
      [&](Lock& lock) {
        CUstream_st* s = stream ? stream_of(stream) : nullptr;
        if (!s || s == &state().null_stream) return cudaErrorInvalidResourceHandle;
        if (s->capture) s->capture->invalid = true, s->capture->streams.erase(s);
        const cudaError_t e = drive(lock, s, [&] { return s->queue.empty() && !s->busy; });
        state().changed.wait(lock, [&] { return !s->busy; });  // with a sticky error drive() returns at once
        state().streams.erase(s);
        return e;
      },
      IfFailing::kFreeAnyway);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture) return reject_captured_stream(*s);
    const cudaError_t e = drive(lock, s, [&] { return s->queue.empty() && !s->busy; });
    state().host_us = std::max(state().host_us, s->clock_us);
    return e;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return call("cudaDeviceSynchronize", [&](Lock& lock) {
    if (invalidates_capture()) return cudaErrorStreamCaptureUnsupported;
    const cudaError_t e = drive(lock, nullptr, all_idle);
    for (CUstream_st* s : every_stream()) state().host_us = std::max(state().host_us, s->clock_us);
    return e;
  });
}

// A query runs what can run, so that a loop of queries ends, and soon where it pauses between them.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture) return reject_captured_stream(*s);
    return run_what_can_run(lock, *s);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](Lock&) {
    if (!to || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    auto e = std::make_unique<CUevent_st>();
    e->flags = flags;
    *to = e.get();
    state().events.emplace(e.get(), std::move(e));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(
      "cudaEventDestroy",
      [&](Lock&) { return state().events.erase(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; },
      IfFailing::kFreeAnyway);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s || !state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    event->capture = s->capture;
    if (s->capture) {
      event->past = s->past;
      return cudaSuccess;
    }
    event->mark = std::make_shared<Mark>(Mark{s});
    return enqueue(lock, *s, {.work = Work::kRecord, .name = "cudaEventRecord", .mark = event->mark});
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call("cudaStreamWaitEvent", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s || !state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    if (event->capture) {  // the stream joins the capture of the event
      if (s->capture && s->capture != event->capture) return cudaErrorStreamCaptureMerge;
      if (!s->capture) s->capture = event->capture, s->past.clear(), s->capture->streams.insert(s);
      for (const auto& [other, n] : event->past) s->past[other] = std::max(s->past[other], n);
      return cudaSuccess;
    }
    if (s->capture) {
      s->capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (!event->mark) return cudaSuccess;  // never recorded: nothing to wait for
    return enqueue(lock, *s, {.work = Work::kWait, .name = "cudaStreamWaitEvent", .mark = event->mark});
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&](Lock& lock) {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    const std::shared_ptr<Mark> mark = event->mark;
    if (!mark) return cudaSuccess;
    const cudaError_t e = drive(lock, mark->reached ? nullptr : mark->stream, [&] { return mark->reached; });
    state().host_us = std::max(state().host_us, mark->clock_us);
    return e;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&](Lock& lock) {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) return cudaErrorCapturedEvent;
    const std::shared_ptr<Mark> mark = event->mark;
    if (!mark || mark->reached) return cudaSuccess;
    return run_one_item(lock, mark->stream);
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&](Lock&) {
    if (!ms) return cudaErrorInvalidValue;
    for (cudaEvent_t e : {start, end})
      if (!state().events.contains(e) || e->flags & cudaEventDisableTiming || !e->mark)
        return cudaErrorInvalidResourceHandle;
    if (!start->mark->reached || !end->mark->reached) return cudaErrorNotReady;
    *ms = static_cast<float>((end->mark->clock_us - start->mark->clock_us) / 1000);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* data) {
  return call("cudaLaunchHostFunc", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!fn) return cudaErrorInvalidValue;
    return enqueue(lock, *s,
                   {.work = Work::kHost,
                    .name = "cudaLaunchHostFunc",
                    .cost_us = state().costs.host_function_us,
                    .run = [fn, data] { fn(data); }});
  });
}
}
