// Opens records as the data of a run. Internal to core/data: open_source() calls it.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"

namespace trainhost::data {

/// The files are read once; their sequences are kept in OpenOptions::cache_dir, under a name that is a hash
/// of everything they depend on. `valid_fraction` selects documents by a hash of their tokens and the seed,
/// so equal documents are all in the same part, and the order of the records does not matter. Notes state
/// what became of the records. Errors: a mixture of records and other files, and those of documents.hpp.
Source open_record_source(const OpenOptions& o);

/// "chat.jsonl", "3 files".
std::string source_name(const std::vector<std::filesystem::path>& paths);

/// make_tokenizer(o.tokenizer), whose notes are appended; usage_error if it has more ids than the model.
std::unique_ptr<Tokenizer> tokenizer_for(const OpenOptions& o, std::vector<std::string>& notes);

/// A line of the identity of mixed data: the weight and the content of one source.
std::string weight_line(double weight, const std::string& content);

/// Adds a note for each source of a mixture: its share, and how often its samples are read in one pass over
/// the data.
void note_mixture(Source& s);

}  // namespace trainhost::data
