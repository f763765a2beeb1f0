// The sink that the host passes to a trainer's save(). It checks every tensor piece before it passes it on.
#pragma once
#include <cstring>
#include <exception>
#include <functional>
#include <string>

#include "core/abi/zero_padded.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/plugin/plugin.hpp"
#include "trainhost/trainer.h"

namespace trainhost::plugin {

inline constexpr std::size_t kMaxName = 4096;

/// The sink of Session::save(). Stores an exception of the receiver until the plugin has returned.
struct SaveSink {
  abi::ZeroPadded<th_tensor_sink> c;
  const std::function<void(const TensorPiece&)>* to = nullptr;
  std::exception_ptr thrown;
  std::string problem;

  explicit SaveSink(const std::function<void(const TensorPiece&)>& receiver) : to(&receiver) {
    c->self = this;
    c->tensor = &on_tensor;
  }

  static th_status on_tensor(th_tensor_sink* sink, const th_tensor* t) noexcept {
    auto* self = static_cast<SaveSink*>(sink->self);
    try {
      TensorPiece piece;
      if (!self->read(t, piece)) return TH_E_ARG;
      (*self->to)(piece);
      return TH_OK;
      // The plugin must not see the exception; it gets a code and ends its loop, and the host throws again
      // after the call.
    } catch (...) {
      self->thrown = std::current_exception();
      return TH_E_CANCELLED;
    }
  }

  bool read(const th_tensor* t, TensorPiece& piece) {
    auto wrong = [&](const char* why) { return problem = why, false; };
    if (!t || !TH_HAS(t, th_tensor, count) || !t->name)
      return wrong("a truncated tensor or one without a name");
    // The name is copied, not kept: it belongs to the plugin.
    piece.name = escaped({t->name, ::strnlen(t->name, kMaxName)}, kMaxName);
    if (t->rank < 1 || t->rank > 2) return wrong("a tensor whose rank is neither 1 nor 2");
    if (t->dtype == 0 || t->dtype > TH_DT_F64) return wrong("a tensor of an unknown type");
    piece.rank = t->rank;
    piece.dtype = static_cast<DType>(t->dtype);
    piece.dim = {t->dim[0], t->rank == 2 ? t->dim[1] : 1};
    std::uint64_t elements = checked_mul(piece.dim[0], piece.dim[1]);
    // Without a sum that could overflow.
    if (t->first > elements || t->count > elements - t->first) return wrong("a piece outside its tensor");
    if (t->count != 0 && !t->data) return wrong("a piece without data");
    piece.data = t->data;
    piece.first = t->first;
    piece.count = t->count;
    return true;
  }
};

}  // namespace trainhost::plugin
