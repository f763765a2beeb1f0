// One JSON object as a Record: which kind it is, and whether its values are what that kind needs.
#pragma once
#include <string_view>

#include "core/base/json_value.hpp"
#include "core/records/record.hpp"

namespace trainhost::records {

/// The record in an object. The kind is decided by the keys that are present, in this order: messages,
/// conversations, prompt, instruction, text; other keys are ignored. Throws JsonError at the value that is
/// wrong: missing, not a text, empty, an unknown role, roles out of order, no assistant.
Record record_of(const JsonValue& object, const RecordKeys& keys);

/// Throws JsonError(at) unless `messages` are an optional system message, then user and assistant in turn,
/// with at least one assistant.
void require_turns(const std::vector<Message>& messages, std::uint64_t at);

}  // namespace trainhost::records
