// See int8.hpp. Follows MatMul8bitLt and the operators of bitsandbytes for CUDA, whose temporary tensors are
// the largest of a forward pass: 8 to 10 bytes per element of the result.
#include "core/frameworks/kernels/int8.hpp"

#include <algorithm>

namespace trainhost::frameworks {
namespace {

struct QuantizedRows {
  Tensor values, row_maxima;
  Tensor outlier_numbers;  // [outliers], none without outliers
};

/// int8_vectorwise_quant() of `x` [rows, inputs], cast to f16.
QuantizedRows quantized_rows(Tape& t, const Tensor& x, std::int64_t outliers) {
  const std::int64_t rows = x->shape[0], inputs = x->shape[1];
  const Tensor half =
      x->type == Element::kF16 ? x : t.make(elementwise(x->shape), Element::kF16, "input, cast");
  QuantizedRows q;
  q.row_maxima = t.make({rows}, Element::kF32, "maxima of the rows");
  q.values = t.make({rows, inputs}, Element::kByte, "quantized input");
  Tensor large;
  {
    const Tensor magnitudes = t.make({rows, inputs}, Element::kF16, "magnitudes");
    large = t.make({rows, inputs}, Element::kBool, "outliers");
  }
  if (outliers) {
    const Tensor columns = t.make({inputs}, Element::kBool, "columns with outliers");
    q.outlier_numbers = t.make({outliers}, Element::kI64, "numbers of the columns with outliers");
  }
  return q;
}

/// The weights of the outlier columns [outputs, outliers] in the type of the input.
Tensor outlier_weights(Tape& t, const Int8Weight& w, Element type) {
  const Shape shape{w.shape[0], w.outliers};
  Tensor values;
  {
    const Tensor bytes = t.make(shape, Element::kByte, "weights of outliers");
    const Tensor scaled = t.make(shape, Element::kF32, "weights of outliers");
    values = t.make(shape, Element::kF32, "weights of outliers");
  }
  return type == Element::kF32 ? values : t.make(shape, type, "weights of outliers");
}

/// int8_scaled_mm(): the kernel writes f16, which is cast to `type`.
Tensor scaled_product(Tape& t, const Shape& shape, Element type) {
  const Tensor integers = t.make(shape, Element::kI32, "product in integers");
  const Tensor half = t.make(shape, Element::kF16, "output, in f16");
  return type == Element::kF16 ? half : t.make(shape, type, "output");
}

/// Casts of addmm() under autocast.
Tensor lowered_copy(Tape& t, const Tensor& x, Element type) {
  return x->type == type ? x : t.make(x->shape, type, "cast");
}

/// The module has the numbers of its last call, which replace those of the call before: as many bytes, so
/// that they are allocated once here, and all calls have the same events. Those of a call exist until it
/// ends, and until the graph is freed where the node of a checkpointed call has others.
void keep_outlier_numbers(Tape& t, const Int8Weight& w, const Tensor& numbers, bool needed) {
  if (!numbers) return;
  if (!w.outlier_numbers)
    w.outlier_numbers = t.new_storage(numbers->shape, numbers->type, Purpose::kKernel, t.module,
                                      "numbers of the columns with outliers");
  if (needed && t.recomputes()) t.keep_with_graph(numbers);
}

}  // namespace

Int8Weight int8_weight(Tape& t, const Shape& shape, const char* module, std::int64_t outliers) {
  Int8Weight w{shape, {}, {}, std::min(outliers, shape[1]), {}};
  w.weight = t.new_storage(shape, Element::kByte, Purpose::kWeights, module, "int8 weight");
  w.row_maxima =
      t.new_storage({shape[0]}, Element::kF32, Purpose::kWeights, module, "row maxima of the int8 weight");
  return w;
}

Tensor linear_8bit(Tape& t, const Tensor& x, const Int8Weight& w) {
  const std::int64_t outputs = w.shape[0], inputs = w.shape[1];
  const auto rows = static_cast<std::int64_t>(x->shape.count()) / inputs;
  const bool needed = t.grad_enabled && x->needs_grad();
  const Tensor a = reshaped_gradient(t, x, {rows, inputs});
  Tensor output, outlier_values;
  {
    QuantizedRows q = quantized_rows(t, a, w.outliers);
    keep_outlier_numbers(t, w, q.outlier_numbers, needed);
    q.outlier_numbers.reset();
    const Shape shape{rows, outputs};
    Tensor weights;
    if (w.outliers) {
      outlier_values = t.make({rows, w.outliers}, a->type, "outliers of the input");
      weights = outlier_weights(t, w, a->type);
    }
    output = scaled_product(t, shape, a->type);
    if (w.outliers) {
      const Element type = t.autocast_on && a->type == Element::kF32 ? t.autocast_type : a->type;
      const Tensor narrow = lowered_copy(t, output, type);
      const Tensor values = lowered_copy(t, outlier_values, type), b = lowered_copy(t, weights, type);
      output = t.make(shape, type, "output");
    }
  }
  if (needed && t.recomputes()) {
    t.keep_while_recomputed(a);
    if (outlier_values) t.keep_while_recomputed(outlier_values);
  }
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = outputs;
  return t.apply_view({"output",
                       std::span(&x, 1),
                       {},
                       false,
                       [a, outlier_values, w_shape = w.shape, x_shape = x->shape](BackwardCall& c) {
                         // Attributes of the node, which exist until the graph is freed.
                         c.tape.keep_with_graph(a);
                         if (outlier_values) c.tape.keep_with_graph(outlier_values);
                         Tensor g = reshaped_gradient(c.tape, c.grads[0], {a->shape[0], w_shape[0]});
                         if (!g->shape.contiguous())
                           g = c.tape.make(g->shape.made_contiguous(), g->type, "gradient, copied");
                         const Tensor weight = c.tape.make(w_shape, a->type, "dequantized weight");
                         c.tape.make({w_shape[0], 1}, Element::kF32, "scales of the rows");
                         const Tensor cast = lowered_copy(c.tape, g, a->type);
                         c.results[0] =
                             c.tape.make(x_shape.made_contiguous(), a->type, "gradient of the input");
                       }},
                      output, shape.made_contiguous());
}

}  // namespace trainhost::frameworks
