// The operators of a decoder as PyTorch's autograd runs them: what each allocates, what it saves, and what
// its gradient allocates, in that order. Names are those of torch where it has one. Values are not computed.
// What a new operator needs: Tape::Operation in tape.hpp.
#pragma once
#include <optional>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

// Views and copies.
Tensor to(Tape& t, const Tensor& x, Element type);
Tensor view(Tape& t, const Tensor& x, const Shape& sizes);
/// A view where the strides allow it, else a copy.
Tensor reshape(Tape& t, const Tensor& x, const Shape& sizes);
Tensor contiguous(Tape& t, const Tensor& x);
Tensor clone(Tape& t, const Tensor& x);
Tensor transpose(Tape& t, const Tensor& x, int a, int b);
Tensor unsqueeze(Tape& t, const Tensor& x, int dim);
Tensor expand(Tape& t, const Tensor& x, int dim, std::int64_t n);
/// Pairs of f32 of the last dimension as complex numbers.
Tensor view_as_complex(Tape& t, const Tensor& x);
/// The same memory as f32, with other sizes.
Tensor view_as_real(Tape& t, const Tensor& x, const Shape& sizes);
/// The first or another `n` elements of a dimension.
Tensor slice(Tape& t, const Tensor& x, int dim, std::int64_t n);
/// Every second element of the last dimension.
Tensor every_second(Tape& t, const Tensor& x);
/// stack((a, b), dim=-1).flatten(-2): elements of a and b in turn.
Tensor stack_pairs(Tape& t, const Tensor& a, const Tensor& b);
/// Parts of the last dimension.
std::vector<Tensor> split(Tape& t, const Tensor& x, std::initializer_list<std::int64_t> sizes);
/// Along the last dimension.
Tensor concatenate(Tape& t, std::initializer_list<Tensor> parts);
/// Along any dimension.
Tensor concatenate_at(Tape& t, const std::vector<Tensor>& parts, int dim);
std::vector<Tensor> split_at(Tape& t, const Tensor& x, int dim, const std::vector<std::int64_t>& sizes);
/// index_copy_(-1, index, source) into x, which needs no gradient. The result is the memory of x.
Tensor copy_columns(Tape& t, const Tensor& x, const Tensor& index, const Tensor& source);
/// The last dimension padded with zeros to a multiple.
Tensor pad_last(Tape& t, const Tensor& x, std::int64_t multiple);

// Elementwise.
Tensor add(Tape& t, const Tensor& a, const Tensor& b);
Tensor subtract(Tape& t, const Tensor& a, const Tensor& b);
/// a += b. The result is the memory of a.
Tensor add_in_place(Tape& t, const Tensor& a, const Tensor& b);
Tensor mul(Tape& t, const Tensor& a, const Tensor& b);
/// a / b, where b needs no gradient.
Tensor divide(Tape& t, const Tensor& a, const Tensor& b);
Tensor mul_number(Tape& t, const Tensor& x);
/// x *= a number, where x is a view of a result. The result is the memory of x.
Tensor mul_number_in_place(Tape& t, const Tensor& x);
Tensor div_number(Tape& t, const Tensor& x);
Tensor add_number(Tape& t, const Tensor& x);
Tensor neg(Tape& t, const Tensor& x);
Tensor silu(Tape& t, const Tensor& x);
/// gelu(approximate="tanh") as one operator.
Tensor gelu(Tape& t, const Tensor& x);
Tensor tanh(Tape& t, const Tensor& x);
Tensor pow(Tape& t, const Tensor& x);
Tensor rsqrt(Tape& t, const Tensor& x);
Tensor dropout(Tape& t, const Tensor& x, double p);

// Reductions over the last dimension.
Tensor mean(Tape& t, const Tensor& x);
Tensor sum(Tape& t, const Tensor& x);
/// Of all elements of one dimension: a scalar.
Tensor sum_of_all(Tape& t, const Tensor& x);
/// type: of the result, if not that of x: softmax(x, dtype=torch.float32) of an f16 tensor is one kernel.
Tensor softmax(Tape& t, const Tensor& x, const char* name = "softmax", std::optional<Element> type = {});
Tensor log_softmax(Tape& t, const Tensor& x, const char* name);
Tensor layer_norm(Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// As one kernel, which keeps 1/rms in f32.
Tensor rms_norm(Tape& t, const Tensor& x, const Tensor& weight);

// Products. Under autocast the inputs are cast first, the last argument first, as C++ evaluates them.
/// x: [..., inputs]; w: [outputs, inputs]; bias: [outputs] or none.
Tensor linear(Tape& t, const Tensor& x, const Tensor& w, const Tensor& bias = {});
/// x: [..., inputs]; w: [inputs, outputs] (Conv1D of GPT-2).
Tensor conv1d(Tape& t, const Tensor& x, const Tensor& w, const Tensor& bias);
/// Batches of matrices in four dimensions.
Tensor matmul(Tape& t, const Tensor& a, const Tensor& b);

/// x: [R, inputs] in groups of rows; w: [E, outputs, inputs].
Tensor grouped_product(Tape& t, const Tensor& x, const Tensor& w, const Tensor& offsets);
/// x[indices]: rows of x in another order, [rows, ...].
Tensor selected_rows(Tape& t, const Tensor& x, const Tensor& indices);
/// index_select() of rows: x: [N, width]; at: [n, 1].
Tensor index_rows(Tape& t, const Tensor& x, const Tensor& at);
/// ranks: that divide the rows of the table, of which `w` is a part.
Tensor embedding(Tape& t, const Tensor& ids, const Tensor& w, std::int64_t ranks = 1);
/// logits: [rows, classes] in f32.
Tensor cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets);
/// The loss of each row.
Tensor cross_entropy_of_rows(Tape& t, const Tensor& logits, const Tensor& targets);

/// Result type of an operator on two tensors.
Element promoted(const Tensor& a, const Tensor& b);
/// A gradient in other sizes: a view, or a copy if the strides do not allow one.
Tensor reshaped_gradient(Tape& t, Tensor g, const Shape& sizes);

/// x / rms(x) in f32, as separate operators.
Tensor divide_by_rms(Tape& t, const Tensor& x);
/// GemmaRMSNorm of transformers and torchtune: x / rms(x) * (1 + weight), all in f32; y has the type of x.
Tensor gemma_norm(Tape& t, const Tensor& x, const Tensor& weight);

}  // namespace trainhost::frameworks
