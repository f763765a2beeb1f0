// The rows of a CSV file (RFC 4180) as records; the first row has the keys. Internal to core/records: see
// record_reader.hpp.
#pragma once
#include <memory>

#include "core/records/record_reader.hpp"

namespace trainhost::records {

std::unique_ptr<RecordReader> open_csv(ReadBytes read, char separator, std::string file);

}  // namespace trainhost::records
