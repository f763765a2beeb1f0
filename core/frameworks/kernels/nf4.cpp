// See nf4.hpp. Products follow linear_nf4() of torchao and MatMul4Bit of bitsandbytes:
// torch.autograd.Functions for a frozen weight, whose dequantized copy exists only during the product.
#include "core/frameworks/kernels/nf4.hpp"

#include <array>

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kElementsPerScale = 64, kBlockOfScales = 256, kTable = 16;

/// NF4Tensor::get_original_weight(): every element becomes an index of 8 bytes first. The two halves are the
/// high and the low bits of each byte.
Tensor dequantized(Tape& t, const Shape& shape, Element type, bool compiled) {
  // The tensors below are variables of the function, which exist until it returns: two times n / 2 indices of
  // 8 bytes, and two tensors of n / 2 values for each half. The result is one more, of n elements.
  const auto elements = static_cast<std::int64_t>(shape.count());
  const std::int64_t half = elements / 2, scales = elements / kElementsPerScale;
  if (compiled) return t.make(shape, type, "dequantized weight");
  const auto indices = [&] {
    const Tensor bits = t.make({half}, Element::kByte, "bits of the indices");
    return t.make({half}, Element::kI64, "indices of the NF4 table");
  };
  const Tensor first = indices(), second = indices();
  const Tensor first_value = t.make({half}, type, "values of the NF4 table");
  const Tensor second_value = t.make({half}, type, "values of the NF4 table");
  Tensor scale;
  {
    const Tensor quotient = t.make({scales}, type, "scales without their mean");
    scale = t.make({scales}, type, "scales");
  }
  const auto scaled = [&] {
    const Tensor repeated = t.make({half}, type, "scales, repeated");
    return t.make({half}, type, "scaled values");
  };
  const Tensor first_scaled = scaled(), second_scaled = scaled();
  return t.make(shape, type, "dequantized weight");
}

/// Fabric quantizes weights that it has cast to f16, so the kernel of bitsandbytes dequantizes to f16.
Tensor dequantized_by_fabric(Tape& t, const Shape& shape, Element type) {
  const Tensor half = t.make(shape, Element::kF16, "dequantized weight");
  return type == Element::kF16 ? half : t.make(shape, type, "dequantized weight, cast");
}

}  // namespace

Nf4Weight nf4_weight(Tape& t, const Shape& shape, Element type, const char* module) {
  const auto elements = static_cast<std::int64_t>(shape.count());
  // 0.5 bytes per element, 1 per 64 and 2 or 4 per 16,384: 0.516 bytes in bf16.
  const std::int64_t scales = elements / kElementsPerScale;
  Nf4Weight w{shape, type, {}};
  const auto add = [&](const Shape& size, Element e, const char* name) {
    w.parts.push_back(t.new_storage(size, e, Purpose::kWeights, module, name));
  };
  add({elements / 2}, Element::kByte, "NF4 weight");
  add({scales}, Element::kByte, "NF4 scales");
  add({scales / kBlockOfScales}, type, "scales of the NF4 scales");
  add({}, type, "mean of the NF4 scales");
  add({kTable}, type, "NF4 table");
  return w;
}

std::int64_t elements_of_nf4(const Shape& shape, Element type) {
  const auto elements = static_cast<std::int64_t>(shape.count()),
             size = static_cast<std::int64_t>(bytes_of(type));
  const std::int64_t scales = elements / kElementsPerScale;
  return (elements / 2 + scales + size - 1) / size + scales / kBlockOfScales;
}

Tensor nf4_linear(Tape& t, const Tensor& x, const Nf4Weight& w, bool compiled) {
  // LinearNF4.forward(): the dequantized weight is freed when it returns.
  const Tensor weight = dequantized(t, w.shape, w.type, compiled);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w.shape[0];
  const Tensor out = t.make(shape.made_contiguous(), x->type, "output");
  // What is saved is the NF4 weight, when the result exists.
  return t.apply_view({"output", std::span(&x, 1), std::span(&w.parts.front(), 1), false,
                       [x_shape = x->shape, w_shape = w.shape, type = w.type, compiled](BackwardCall& c) {
                         // The gradient of the input needs the weight a second time; the weight itself has
                         // none.
                         const Tensor again = dequantized(c.tape, w_shape, type, compiled);
                         c.results[0] = c.tape.make(x_shape.made_contiguous(), c.grads[0]->type,
                                                    "gradient of the input");
                       }},
                      out, out->shape);
}

Shape packed_shape(const Shape& shape, Element storage) {
  const auto elements_each = static_cast<std::int64_t>(2 * bytes_of(storage));
  return {(static_cast<std::int64_t>(shape.count()) + 1) / elements_each, 1};
}

Nf4Weight bitsandbytes_weight(Tape& t, const Shape& shape, Element type, const char* module, bool doubled,
                              const Tensor& packed) {
  const auto elements = static_cast<std::int64_t>(shape.count());
  // Blocks at the end may be incomplete; torchao requires whole ones.
  const std::int64_t scales = (elements + kElementsPerScale - 1) / kElementsPerScale;
  Nf4Weight w{shape, type, {}};
  const auto add = [&](const Shape& size, Element e, const char* name) {
    w.parts.push_back(t.new_storage(size, e, Purpose::kWeights, module, name));
  };
  if (packed)
    w.parts.push_back(packed);
  else
    add({(elements + 1) / 2}, Element::kByte, "NF4 weight");
  add({scales}, doubled ? Element::kByte : Element::kF32, "NF4 scales");
  add({kTable}, Element::kF32, "NF4 table");
  if (doubled) {
    add({(scales + kBlockOfScales - 1) / kBlockOfScales}, Element::kF32, "scales of the NF4 scales");
    add({kBlockOfScales}, Element::kF32, "table of the NF4 scales");
    add({}, Element::kF32, "mean of the NF4 scales");
  }
  return w;
}

Tensor bitsandbytes_linear(Tape& t, const Tensor& x, const Nf4Weight& w) {
  const Tensor weight = dequantized_by_fabric(t, w.shape, w.type);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w.shape[0];
  // ctx.tensors = (A, B): version 0.42 saves the input although only the gradient of a trained weight needs
  // it.
  const std::array saved{x, w.parts.front()};
  return t.apply({"output", std::span(&x, 1), saved, false,
                  [w_shape = w.shape, type = w.type](BackwardCall& c) {
                    const Tensor again = dequantized_by_fabric(c.tape, w_shape, type);
                    c.results[0] = c.tape.make(c.saved[0]->shape.made_contiguous(), c.grads[0]->type,
                                               "gradient of the input");
                  }},
                 shape.made_contiguous(), x->type);
}

Tensor linear_4bit(Tape& t, const Tensor& x, const Nf4Weight& w) {
  const Tensor cast = to(t, x, w.type);
  const bool doubled = w.parts.size() > 3;
  const Shape scales = w.parts[1]->shape;
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w.shape[0];
  Tensor out;
  {
    // _dequant_linear_fallback(). Products of at most 1,536 rows may take a fused kernel, which depends on
    // the GPU and dequantizes nothing.
    Tensor quotients, sums;
    if (doubled) {
      quotients = t.make(scales, Element::kF32, "scales without their mean");
      sums = t.make(scales, Element::kF32, "scales");
    }
    const Tensor weight = t.make(w.shape, w.type, "dequantized weight");
    out = t.make(shape.made_contiguous(), w.type, "output");
  }
  // The weight is an attribute of the node, not a saved tensor: a checkpointed region does not wait for it.
  out =
      t.apply_view({"output",
                    std::span(&cast, 1),
                    {},
                    false,
                    [x_shape = x->shape, w_shape = w.shape, type = w.type, scales, doubled](BackwardCall& c) {
                      Tensor weight;
                      {
                        Tensor sums;
                        if (doubled) sums = c.tape.make(scales, Element::kF32, "scales");
                        weight = c.tape.make(w_shape, type, "dequantized weight");
                      }
                      const auto rows = static_cast<std::int64_t>(x_shape.count()) / x_shape[-1];
                      const Tensor g = reshaped_gradient(c.tape, c.grads[0], {rows, w_shape[0]});
                      c.results[0] = c.tape.make(x_shape.made_contiguous(), g->type, "gradient of the input");
                    }},
                   out, out->shape);
  return to(t, out, x->type);
}

}  // namespace trainhost::frameworks
