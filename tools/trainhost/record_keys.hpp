// The option --key NAME=KEY of commands that read records: the value of KEY is used as that of NAME.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/records/record.hpp"

namespace trainhost::cli {

using NamedKeys = std::vector<std::pair<std::string, std::string*>>;

/// The keys of records to train on, by name.
NamedKeys named_keys(records::RecordKeys& keys);

/// Throws usage_error for a setting without '=' or value, and for a name that is not among `keys`.
void set_keys(const std::vector<std::string>& settings, const NamedKeys& keys);

}  // namespace trainhost::cli
