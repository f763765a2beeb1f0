// The training data of a run as training reads it: the share of each source, and samples in the order of the
// steps. For `trainhost data stats` and `show` of a run file; prints nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"

namespace trainhost::data {

/// What training reads of one source.
struct SourceShare {
  SourceFiles source;
  std::uint64_t samples = 0;  // sequences of the source
  double weight = 0;          // of data.weights; 1 for the only source
  double of_samples = 0;      // share of the samples that are read
  double of_tokens = 0;       // the same of tokens; padding does not count
  double epochs = 0;          // how often each of its samples is read
};

/// Shares of the sources in the first `read` samples of the order of training.
std::vector<SourceShare> source_shares(const Source& s, std::uint64_t read);

/// A document of a sample, or the part of one that is in it.
struct ShownDocument {
  std::vector<records::Part> parts;
  std::uint64_t tokens = 0, counted = 0;
};
struct ShownSample {
  std::uint64_t position = 0;  // in the order of training, from 1
  std::string source;
  std::uint64_t sample = 0;  // number within its source, from 1
  std::vector<ShownDocument> documents;
  std::uint64_t padding = 0;  // tokens
};

/// `count` samples from position `first` (from 1) of `order`. A sample has seq_len tokens and the target of
/// the last one, if it is counted.
std::vector<ShownSample> show_samples(const Source& s, const Tokenizer& tokenizer, const Order& order,
                                      std::uint32_t seq_len, std::uint64_t first, std::uint64_t count);

}  // namespace trainhost::data
