// One falsification test: an id of CONTRACTS.md, a title for people, and a function that says held, falsified
// or skipped. All of them stand in one table (contract_table.cpp). A check sees a Context and nothing else:
// no plugin file, no device.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainhost::verify {

struct Context;

enum class Status { kHeld, kFalsified, kSkipped };

/// What a check found. `measured` and `bound` are the figures that decided; both absent where nothing could
/// be measured.
struct Result {
  std::string id, title;
  Status status = Status::kSkipped;
  std::optional<double> measured, bound;
  std::string detail;   // one or two sentences: what was compared, what was found, the worst mode
  bool decides = true;  // false: reported, and never the reason for exit 5
};

struct Check {
  std::string id, title;
  std::function<Result(Context&)> run;  // fills status, figures and detail; id and title are the table's
  bool needs_trainer = true;            // false: judged even where the backend cannot be used
  bool decides = true;
};

/// Every check in the order of the contracts.
std::span<const Check> checks();

/// The checks that `only` names ("GPU-001,MEM-002"; MEM-002 brings MEM-002/run), in the order of the table;
/// all of them when it is empty. Throws usage_error with the nearest id for one that does not exist.
std::vector<const Check*> select(const std::string& only);

const char* word(Status s);  // "held" | "falsified" | "skipped"

}  // namespace trainhost::verify
