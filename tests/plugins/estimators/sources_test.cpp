// Computes every worked number of the estimators' sources with the estimators' functions and compares it with
// tests/golden/sources.json. A case is computed, or listed with the reason why no formula gives it; any other
// case of the file, and any case here that the file does not have, fails.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/text.hpp"
#include "plugins/estimators/contract/closed_form.hpp"
#include "plugins/estimators/memory-equation/equation.hpp"
#include "tests/plugins/estimators/report_notes.hpp"
#include "tests/plugins/estimators/sources_cases.hpp"

using namespace trainhost;
using namespace trainhost::sources;
namespace me = trainhost::memory_equation;
using trainhost::test::has_note;

namespace {

using Json = nlohmann::json;

const Json& cases() {
  static const Json file = Json::parse(std::ifstream(TRAINHOST_SOURCE_DIR "/tests/golden/sources.json"));
  return file.at("cases");
}

const Json& the_case(const std::string& id) {
  for (const Json& c : cases())
    if (c.at("id") == id) return c;
  throw std::runtime_error("no case " + id);
}

/// Numbers of a value in the file with their rounding error (half a unit of the last decimal), members by
/// name; empty for text.
void flatten(const Json& value, std::vector<std::pair<double, double>>& out) {
  if (value.is_number_integer()) return out.push_back({value.get<double>(), 0}), void();
  if (value.is_number_float()) {
    const std::string text = value.dump();
    const std::size_t dot = text.find('.');
    const bool plain = dot != std::string::npos && text.find('e') == std::string::npos;
    return out.push_back(
               {value.get<double>(), plain ? 0.5 * std::pow(10, -double(text.size() - dot - 1)) : 0}),
           void();
  }
  if (value.is_structured())
    for (const Json& item : value) flatten(item, out);
}

void compare(const std::string& id, const Json& expected, const Values& values) {
  std::vector<std::pair<double, double>> want;
  flatten(expected, want);
  BOOST_TEST_REQUIRE(!want.empty(), id << ": the file has no number");
  BOOST_TEST_REQUIRE(want.size() == values.size(), id << ": another number of values than the file's");
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto [number, half_unit] = want[i];
    BOOST_TEST(std::abs(values[i] - number) <= half_unit * (1 + 1e-9),
               id << "[" << i << "]: computed " << values[i] << ", the file has " << number);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sources_)

BOOST_AUTO_TEST_CASE(every_worked_number_is_computed) {
  const auto all = computed();
  for (const auto& [id, values] : all) compare(id, the_case(id).at("recomputed"), values());
  BOOST_TEST_MESSAGE(all.size() << " of " << cases().size() << " cases computed");
}

BOOST_AUTO_TEST_CASE(printed_values_of_false_assumptions_follow_from_the_formula) {
  for (const auto& [id, values] : as_written()) compare(id, the_case(id).at("printed"), values());
}

BOOST_AUTO_TEST_CASE(every_case_of_the_file_is_computed_or_listed) {
  const auto all = computed();
  std::set<std::string> ids;
  for (const Json& c : cases()) {
    const std::string id = c.at("id");
    BOOST_TEST(ids.insert(id).second, id << " is in the file twice");
    BOOST_TEST(all.count(id) + listed().count(id) == 1u, id << " is neither computed nor listed, or both");
    // A case with a number must be computed, not only listed.
    std::vector<std::pair<double, double>> numbers;
    flatten(c.at("recomputed"), numbers);
    if (c.at("verdict") != "judgment" && !numbers.empty() && c.at("source") != "calculon-static-memory")
      BOOST_TEST(all.count(id) == 1u, id << " has a number and is only listed");
  }
  for (const auto& [id, reason] : listed())
    BOOST_TEST(ids.count(id) == 1u, id << " is listed (" << reason << ") and not in the file");
  for (const auto& [id, values] : all)
    BOOST_TEST(ids.count(id) == 1u, id << " is computed and not in the file");
}

BOOST_AUTO_TEST_CASE(the_notes_of_contract_have_the_numbers_of_the_file) {
  for (const auto& [name, m] : models()) {
    if (name == "350m") continue;
    const Json& c = the_case("000-P-" + name);
    const MemoryReport r = contract::estimate(m, of_length(2048), Tier::kHost);
    const std::string note = c.at("note"),
                      percent = note.substr(note.find('(') + 1, note.find('%') - note.find('('));
    const std::string sign = percent.front() == '-' ? "" : "+";
    BOOST_TEST(has_note(r, "True parameter count: " + format_count(c.at("recomputed").get<std::uint64_t>())),
               name);
    BOOST_TEST(has_note(r, "(" + sign + percent + ")"), name << ": no note with " << percent);
  }
  for (auto [name, S] : {std::pair{"llama2-7b", 2048u}, {"llama3-8b", 8192u}, {"tinyllama-1.1b", 2048u}}) {
    const Json& c = the_case(std::string("000-K-") + name);
    const MemoryReport r = contract::estimate(models().at(name), of_length(S), Tier::kHost);
    const std::string note = c.at("note"), times = note.substr(note.find("is ") + 3, 4);
    BOOST_TEST(has_note(r, format_count(c.at("recomputed").get<std::uint64_t>()) + " bytes per sequence, " +
                               times + " times"),
               name);
  }
  BOOST_TEST(has_note(contract::estimate(models().at("gemma2-9b"), of_length(8), Tier::kHost),
                      "of the family gemma2, with 4 norms per layer; the formula has 2"));
  const MemoryReport gpu = contract::estimate(models().at("350m"), of_length(2048), Tier::kDevice);
  BOOST_TEST(has_note(gpu, "= 545,259,520 bytes per step over PCIe, 17.04 ms at 32 GB/s"));
  BOOST_TEST(has_note(gpu, "True parameter count: 432,063,488; the formula gives 398,509,056"));
}

BOOST_AUTO_TEST_CASE(the_three_crossovers_differ) {
  BOOST_TEST(me::crossover(4096, 32) == 1408);
  BOOST_TEST(me::crossover_of_exercise(4096, 32) == 4352);
  BOOST_TEST(std::floor(me::crossover_of_paper(4096, 32)) == 870);
}

BOOST_AUTO_TEST_SUITE_END()
