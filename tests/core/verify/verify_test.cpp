// Broken trainers prove the checks: for every id one that only this check detects, and a correct one that all
// checks accept.
#include <sys/stat.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <ostream>

#include "core/report/verify_report.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/snapshot.hpp"
#include "tests/core/verify/fake_trainer.hpp"
#include "tests/support/process.hpp"

using namespace trainhost;
using namespace trainhost::verify;
using trainhost::test::has;

namespace {

const char* kTinyRun =
    "[model]\nhidden_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 1\nnum_key_value_heads = "
    "1\nintermediate_size = 8\n"
    "[data]\nseq_len = 8\n[train]\nmicro_batch = 1\ngrad_accum = 2\nsteps = 20\n[optimizer]\nlr = "
    "1e-3\ngrad_clip = "
    "0\n";

constexpr const char* kGoodEvents =
    R"({"event":"start","backend":"cpu","requested":"cuda","fallback_reason":"no driver"}
{"event":"step","step":1}
{"event":"step","step":2}
{"event":"done","steps":2}
)";

/// A program that prints a text and exits with a code, for any arguments.
class Script {
 public:
  Script(const std::string& output, int code) {
    std::ofstream(dir_.path() / "program") << "#!/bin/sh\ncat <<'END'\n"
                                           << output << "END\necho went wrong >&2\nexit " << code << "\n";
    ::chmod((dir_.path() / "program").c_str(), 0755);
  }
  std::filesystem::path path() const { return dir_.path() / "program"; }

 private:
  test::TemporaryDirectory dir_;
};

fake::Outcome outcome(fake::TestedTrainers& trainers, const std::filesystem::path& program,
                      const std::string& only = {}, bool small = false) {
  Context context(runfile::parse_run(kTinyRun, "", "/"), trainers);
  context.program = program;
  context.small = small;
  context.now = [] { return fake::clock(); };
  return fake::outcome_of(context, only);
}

/// The fault is in hybrid mode only, so that the worst mode must be found too.
fake::Outcome with(const std::string& fault, const std::string& only = {}, bool small = false) {
  static const Script good(kGoodEvents, 0);
  fake::TestedTrainers s("", fault);
  return outcome(s, good.path(), only, small);
}

struct Fault {
  const char *fault, *id, *says;
};
std::ostream& operator<<(std::ostream& o, const Fault& f) { return o << f.id << " " << f.fault; }

// Each is detected by exactly one check.
const Fault kFaults[] = {
    {"loss drifts", "GPU-001", "differ by at most"},
    {"head drifts", "GPU-002", "computes with other weights"},
    {"copies differ", "GPU-002", "counts 3 elements"},
    {"leaves the device idle", "GPU-004", "kernels ran"},
    {"counts time twice", "GPU-004", "counts time twice"},
    {"makes one transfer more", "GPU-005", "3.25 transfers"},
    {"sends half", "GPU-005", "S*B*(H+2V)"},
    {"counts a copy as sync", "GPU-005", "class sync"},
    {"exposes transfers", "GPU-005", "exposed"},
    {"embedding unclipped", "GPU-006", "changes the weights by"},
    {"reports no norm", "GPU-006", "gradient norm nan"},
    {"hidden eps", "GPU-007", "optimizer.eps has no effect on model.embed_tokens.weight"},
    {"hidden beta2", "GPU-007", "optimizer.betas[1] has no effect on model.embed_tokens.weight"},
    {"decays norms", "GPU-007", "which has one dimension"},
    {"stale when late", "GPU-008", "differ"},
    {"counts violations", "GPU-008", "early reads"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(verify_suite)

BOOST_AUTO_TEST_CASE(a_correct_trainer_holds_every_contract) {
  const fake::Outcome o = with("");
  for (const Result& r : o.results)  // K = 10 is not a bound for a trainer that keeps every tensor
    BOOST_TEST((r.status == (r.id == "MEM-002/run" ? Status::kFalsified
                             : r.id == "REF-001"   ? Status::kSkipped  // rejected by the fake trainer
                                                   : Status::kHeld)),
               r.id + ": " + r.detail);
  BOOST_TEST(o.results.size() == 16u);
  BOOST_TEST((exit_of(o.results) == Exit::kDone));
  BOOST_TEST(has(o.of("GPU-001").detail, "over 20 steps"), o.of("GPU-001").detail);
  BOOST_TEST(has(o.of("GPU-005").detail, "341."), o.of("GPU-005").detail);
}

BOOST_DATA_TEST_CASE(a_broken_trainer_is_detected_by_exactly_one_check, boost::unit_test::data::make(kFaults),
                     f) {
  const fake::Outcome o = with(f.fault);
  BOOST_TEST(o.falsified == f.id, o.of(f.id).detail);
  BOOST_TEST(has(o.of(f.id).detail, f.says), o.of(f.id).detail);
  BOOST_TEST((exit_of(o.results) == Exit::kFalsified));
}

BOOST_AUTO_TEST_CASE(the_falsified_mode_is_named) {
  const fake::Outcome o = with("loss drifts", "GPU-001");
  BOOST_TEST(has(o.of("GPU-001").detail, "worst in mode hybrid"), o.of("GPU-001").detail);
  BOOST_TEST(has(o.of("GPU-001").detail, "resident held"), o.of("GPU-001").detail);
}

BOOST_AUTO_TEST_CASE(saved_weights_that_differ_from_trained_ones_are_detected) {
  BOOST_TEST(
      has(with("freezes a norm", "GPU-002").of("GPU-002").detail, "have not changed: model.norm.weight"));
  BOOST_TEST(has(with("saves too early", "GPU-002").of("GPU-002").detail, "between two saves"));
  BOOST_TEST(has(with("gives a NaN weight", "GPU-006").of("GPU-006").detail, "step 5: loss nan"));
}

BOOST_AUTO_TEST_CASE(a_trainer_that_fails_during_a_check_falsifies_the_contract) {
  const fake::Outcome o = with("fails", "GPU-001,GPU-002");
  BOOST_TEST(o.falsified == "GPU-001 GPU-002");
  BOOST_TEST(has(o.of("GPU-001").detail, "a kernel is missing"), o.of("GPU-001").detail);
  BOOST_TEST(has(with("saves too few", "GPU-002").of("GPU-002").detail, "save() gave 0 of the"));
}

BOOST_AUTO_TEST_CASE(a_mode_without_enough_memory_is_skipped_and_named) {
  const fake::Outcome o = with("not enough memory");
  BOOST_TEST(o.falsified == "");
  BOOST_TEST((o.of("GPU-001").status == Status::kHeld));
  BOOST_TEST(has(o.of("GPU-001").detail, "skipped: hybrid: cuda: GPU is 3 GiB short"),
             o.of("GPU-001").detail);
  BOOST_TEST((o.of("GPU-004").status == Status::kSkipped));
  BOOST_TEST(has(o.of("GPU-005").detail, "GPU is 3 GiB short"), o.of("GPU-005").detail);
}

BOOST_AUTO_TEST_CASE(the_fallback_is_tested_by_the_output_of_the_program) {
  struct Case {
    std::string says;
    int code;
    const char* detail;
  };
  const std::string good = kGoodEvents;
  auto without = [&](const std::string& part, const std::string& instead) {
    std::string s = good;
    return s.replace(s.find(part), part.size(), instead);
  };
  const Case cases[] = {
      {good, 1, "exited with code 1; its last output: went wrong"},
      {without("\"cpu\"", "\"cuda\""), 0, "trained on 'cuda'"},
      {without("no driver", ""), 0, "without reporting a reason"},
      {without("{\"event\":\"step\",\"step\":2}\n", ""), 0, "took 1 of 2 steps"},
      {"not JSON\n", 0, "trained on ''"},
  };
  for (const Case& c : cases) {
    fake::TestedTrainers s("", "");
    const Script script(c.says, c.code);
    const fake::Outcome o = outcome(s, script.path(), c.code ? "GPU-003" : "");
    BOOST_TEST(o.falsified == "GPU-003");
    BOOST_TEST(has(o.of("GPU-003").detail, c.detail), o.of("GPU-003").detail);
  }
}

BOOST_AUTO_TEST_CASE(without_a_device_checks_that_need_a_trainer_are_skipped_with_the_reason) {
  fake::TestedTrainers s("", "");
  s.unavailable_reason_ = "no driver on this machine";
  const Script script(kGoodEvents, 0);
  for (const Result& r : outcome(s, script.path()).results) {
    const bool judged = r.id == "GPU-003" || r.id == "MEM-EXACT-001";
    BOOST_TEST((r.status == (judged ? Status::kHeld : Status::kSkipped)), r.id);
    BOOST_TEST((judged || r.detail == "no driver on this machine"), r.detail);
    BOOST_TEST(r.measured.has_value() == judged);
  }
}

BOOST_AUTO_TEST_CASE(transfer_checks_of_a_host_trainer_are_skipped) {
  fake::TestedTrainers s("", "");
  s.on_device_ = false;
  s.backend_ = "cpu";
  const fake::Outcome o = outcome(s, "/nowhere");
  for (const char* id : {"GPU-003", "GPU-004", "GPU-005", "GPU-008"}) {
    BOOST_TEST((o.of(id).status == Status::kSkipped), id);
    BOOST_TEST(has(o.of(id).detail, "the cpu backend makes no transfers"), o.of(id).detail);
  }
  for (const char* id : {"GPU-001", "GPU-002", "GPU-006", "GPU-007"})
    BOOST_TEST((o.of(id).status == Status::kHeld), o.of(id).detail);
}

BOOST_AUTO_TEST_CASE(bounds_for_350M_do_not_apply_to_a_small_model) {
  const fake::Outcome idle = with("leaves the device idle", "GPU-004", true);
  BOOST_TEST((idle.of("GPU-004").status == Status::kSkipped), idle.of("GPU-004").detail);
  BOOST_TEST(has(idle.of("GPU-004").detail, "kernels ran"), idle.of("GPU-004").detail);
  BOOST_TEST((with("exposes transfers", "GPU-005", true).of("GPU-005").status == Status::kHeld));
  BOOST_TEST((with("makes one transfer more", "GPU-005", true).of("GPU-005").status == Status::kFalsified));
}

BOOST_AUTO_TEST_CASE(checks_are_selected_by_id_and_typos_get_a_suggestion) {
  BOOST_TEST(select("").size() == 16u);
  BOOST_TEST(select("MEM-002").size() == 2u);  // with the run's own policy
  BOOST_TEST(select("MEM-002/run").size() == 1u);
  BOOST_TEST(select("MEM-002/run").front()->decides == false);
  BOOST_TEST(select("GPU-003,GPU-001").size() == 2u);
  BOOST_TEST(select("GPU-003,GPU-001").front()->id == "GPU-001");
  BOOST_CHECK_EXCEPTION(select("GPU-O07"), Error, [](const Error& e) {
    return e.code() == Exit::kUsage && has(e.full(), "--only") && has(e.full(), "did you mean 'GPU-007'");
  });
}

BOOST_AUTO_TEST_CASE(results_become_json_and_reported_only_rows_do_not_change_the_exit_code) {
  Result r;
  r.id = "MEM-002/run";
  r.status = Status::kFalsified;
  r.measured = INFINITY;
  r.bound = 3;
  r.detail = "a \"quoted\" \x1b[31m word";
  r.decides = false;
  const std::string json = report::verify_json({r});
  BOOST_TEST(has(json, "\"status\": \"falsified\""), json);
  BOOST_TEST(has(json, "\"measured\": null"), json);
  BOOST_TEST(!has(report::verify_table({r}, {}), "\x1b"));
  BOOST_TEST((exit_of({r}) == Exit::kDone));
  r.decides = true;
  BOOST_TEST((exit_of({r}) == Exit::kFalsified));
}

BOOST_AUTO_TEST_CASE(weights_are_compared_bit_by_bit) {
  const std::vector<float> a = {0.f, NAN, 1.f}, b = {-0.f, NAN, 1.f};
  BOOST_TEST(different_bits(a, b) == 1u);
  BOOST_TEST(max_abs_difference(a, b) == INFINITY);
  BOOST_TEST(join_first_names({"a", "b", "c", "d", "e"}) == "a, b, c and 2 more");
}

BOOST_AUTO_TEST_SUITE_END()
