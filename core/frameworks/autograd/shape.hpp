// Shape: sizes and strides of a tensor of up to five dimensions, and PyTorch's rules about them: which views
// exist, which strides the result of an elementwise operator has. They decide where PyTorch has to copy.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace trainhost::frameworks {

struct Shape {
  static constexpr int kMaxDims = 5;
  int dims = 0;
  std::array<std::int64_t, kMaxDims> size{}, stride{};  // in elements

  Shape() = default;
  /// Contiguous.
  Shape(std::initializer_list<std::int64_t> sizes);

  std::int64_t operator[](int dim) const { return size[dim < 0 ? dims + dim : dim]; }
  std::uint64_t count() const;
  bool contiguous() const;
  bool same_sizes(const Shape& other) const;

  Shape transposed(int a, int b) const;
  Shape unsqueezed(int dim) const;
  /// Dimension `dim` (of size 1) repeated `n` times with stride 0.
  Shape expanded(int dim, std::int64_t n) const;
  /// Elements [0, n) of the dimension; the offset does not matter here.
  Shape sliced(int dim, std::int64_t n) const;
  /// Strides with which the same memory has the other sizes; nullopt if there are none, so that reshape()
  /// copies.
  std::optional<Shape> viewed(const Shape& sizes) const;
  Shape made_contiguous() const;
};

/// Sizes after broadcasting, and the strides that PyTorch's TensorIterator gives a new result.
Shape elementwise(const Shape& a, const Shape& b);
Shape elementwise(const Shape& a);

}  // namespace trainhost::frameworks
