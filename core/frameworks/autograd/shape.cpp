// See shape.hpp. The rules are those of TensorIterator (strides of a new result) and of
// at::detail::computeStride() (which views exist) in torch 2.15. Offsets into a storage are left out: they
// decide no size.
#include "core/frameworks/autograd/shape.hpp"

#include <algorithm>
#include <cassert>
#include <span>

namespace trainhost::frameworks {
namespace {

void set_contiguous(Shape& s) {
  // Like torch: an empty dimension counts as one element, so that strides are never 0 here. Stride 0 means
  // an expanded dimension.
  std::int64_t step = 1;
  for (int i = s.dims - 1; i >= 0; --i) {
    s.stride[i] = step;
    step *= std::max<std::int64_t>(s.size[i], 1);
  }
}

/// Operand with the dimensions of the result: new leading dimensions and broadcast ones have stride 0.
Shape broadcast_to(const Shape& s, const Shape& sizes) {
  Shape out;
  out.dims = sizes.dims;
  for (int i = 0; i < sizes.dims; ++i) {
    const int from = i - (sizes.dims - s.dims);
    const bool absent = from < 0 || (s.size[from] == 1 && sizes.size[i] != 1);
    out.size[i] = sizes.size[i];
    out.stride[i] = absent ? 0 : s.stride[from];
  }
  return out;
}

/// TensorIterator::reorder_dimensions: 1 if `inner` (so far the inner of the two) has to become the outer
/// one.
int compare_strides(std::span<const Shape> operands, int inner, int outer) {
  for (const Shape& s : operands) {
    const std::int64_t a = s.stride[inner], b = s.stride[outer];
    // A broadcast dimension has no order in this operand.
    if (a == 0 || b == 0) continue;
    if (a != b) return a < b ? -1 : 1;
    if (s.size[inner] > s.size[outer]) return 1;
  }
  return 0;
}

/// Gives `out` strides in the order of those of the operands: a result of transposed tensors is transposed
/// too. It matters because attention and products see [B, heads, S, D] as a view of memory in the order [B,
/// S, heads, D]: where the result keeps that order, a later view needs no copy.
void follow_strides(Shape& out, std::span<const Shape> operands) {
  std::array<int, Shape::kMaxDims> order{};  // innermost first
  for (int i = 0; i < out.dims; ++i) order[i] = out.dims - 1 - i;
  // Insertion sort as in reorder_dimensions(): where operands disagree, the order of comparisons decides.
  for (int i = 1; i < out.dims; ++i) {
    int at = i;
    for (int before = i - 1; before >= 0; --before) {
      const int comparison = compare_strides(operands, order[before], order[at]);
      if (comparison > 0) {
        std::swap(order[before], order[at]);
        at = before;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  std::int64_t step = 1;
  for (int i = 0; i < out.dims; ++i) {
    out.stride[order[i]] = step;
    step *= out.size[order[i]];
  }
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> sizes) : dims(static_cast<int>(sizes.size())) {
  assert(sizes.size() <= kMaxDims);
  std::copy(sizes.begin(), sizes.end(), size.begin());
  set_contiguous(*this);
}

std::uint64_t Shape::count() const {
  std::uint64_t n = 1;
  for (int i = 0; i < dims; ++i) n *= static_cast<std::uint64_t>(size[i]);
  return n;
}

bool Shape::contiguous() const {
  std::int64_t step = 1;
  for (int i = dims - 1; i >= 0; --i) {
    // The stride of a dimension with one element is never used.
    if (size[i] != 1 && stride[i] != step) return false;
    step *= size[i];
  }
  return true;
}

bool Shape::same_sizes(const Shape& other) const {
  return dims == other.dims && std::equal(size.begin(), size.begin() + dims, other.size.begin());
}

Shape Shape::transposed(int a, int b) const {
  Shape out = *this;
  a = a < 0 ? dims + a : a;
  b = b < 0 ? dims + b : b;
  std::swap(out.size[a], out.size[b]);
  std::swap(out.stride[a], out.stride[b]);
  return out;
}

Shape Shape::unsqueezed(int dim) const {
  Shape out;
  assert(dims < kMaxDims && 0 <= dim && dim <= dims);
  out.dims = dims + 1;
  for (int i = 0; i < dim; ++i) out.size[i] = size[i], out.stride[i] = stride[i];
  out.size[dim] = 1;
  out.stride[dim] = dim < dims ? size[dim] * stride[dim] : 1;
  for (int i = dim; i < dims; ++i) out.size[i + 1] = size[i], out.stride[i + 1] = stride[i];
  return out;
}

Shape Shape::expanded(int dim, std::int64_t n) const {
  Shape out = *this;
  assert(size[dim] == 1 || size[dim] == n);
  out.size[dim] = n;
  if (n != 1) out.stride[dim] = 0;
  return out;
}

Shape Shape::sliced(int dim, std::int64_t n) const {
  Shape out = *this;
  out.size[dim < 0 ? dims + dim : dim] = n;
  return out;
}

// at::detail::computeStride(): from the innermost dimension outwards, dimensions whose memory is one run of
// equal steps form a group (`run` elements, `step` apart). The sizes must divide each group exactly; a size
// that would span two groups has no stride. So [B, heads, S, D], a transposed view of [B, S, heads, D],
// cannot be seen as [B * heads, S, D] unless B or heads is 1.
std::optional<Shape> Shape::viewed(const Shape& sizes) const {
  Shape out = sizes;
  int to = sizes.dims - 1;
  std::int64_t step = dims ? stride[dims - 1] : 1, run = 1, given = 1;
  for (int from = dims - 1; from >= 0; --from) {
    run *= size[from];
    if (from > 0 && (size[from - 1] == 1 || stride[from - 1] == run * step)) continue;
    while (to >= 0 && (given < run || sizes.size[to] == 1)) {
      out.stride[to] = given * step;
      given *= sizes.size[to];
      --to;
    }
    if (given != run) return std::nullopt;
    if (from > 0) {
      step = stride[from - 1];
      run = given = 1;
    }
  }
  if (to != -1) return std::nullopt;
  return out;
}

Shape Shape::made_contiguous() const {
  Shape out = *this;
  set_contiguous(out);
  return out;
}

Shape elementwise(const Shape& a, const Shape& b) {
  Shape out;
  out.dims = std::max(a.dims, b.dims);
  for (int i = 0; i < out.dims; ++i) {
    const int ia = i - (out.dims - a.dims), ib = i - (out.dims - b.dims);
    out.size[i] = std::max(ia < 0 ? 1 : a.size[ia], ib < 0 ? 1 : b.size[ib]);
  }
  const std::array operands{broadcast_to(a, out), broadcast_to(b, out)};
  follow_strides(out, operands);
  return out;
}

Shape elementwise(const Shape& a) {
  Shape out = a;
  follow_strides(out, std::span(&a, 1));
  return out;
}

}  // namespace trainhost::frameworks
