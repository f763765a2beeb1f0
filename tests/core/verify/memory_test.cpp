// Broken trainers prove the memory checks: each breaks one contract, in what it allocates or in its report.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"
#include "core/verify/contract_equations.hpp"
#include "tests/core/verify/fake_trainer.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using namespace trainhost::verify;
using trainhost::test::has;

namespace {

constexpr const char* kRun = R"([model]
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 1
num_key_value_heads = 1
intermediate_size = 8
[data]
seq_len = 8
[train]
micro_batch = 3
)";
constexpr const char* kMemory = "MEM-001,MEM-002,MEM-003,MEM-004,MEM-005,MEM-EXACT-001";

/// The fault is in hybrid mode only.
fake::Outcome with(const std::string& fault, const std::string& more = {}) {
  fake::TestedTrainers trainers("", fault);
  Context context(runfile::parse_run(kRun + more, "", "/"), trainers);
  return fake::outcome_of(context, kMemory);
}

struct Fault {
  const char *fault, *ids, *of, *says;
};
std::ostream& operator<<(std::ostream& o, const Fault& f) { return o << f.of << " " << f.fault; }

const Fault kFaults[] = {
    {"saves a tensor more", "MEM-001", "MEM-001", "have 4,560 elements; P = 2,520"},
    {"saves too few", "MEM-001 MEM-EXACT-001", "MEM-001", "have 2,456 elements"},
    {"keeps every tensor", "MEM-002", "MEM-002", "K = 1"},
    {"reports activations as workspace", "MEM-002", "MEM-002", "by growth with twice"},
    {"allocates a GiB", "MEM-003", "MEM-003", "the run's own \"none\" takes"},
    {"stores weights twice", "MEM-004 MEM-EXACT-001", "MEM-004", "weights take 20,160 of"},
    {"allocates unreported bytes", "MEM-002 MEM-004 MEM-EXACT-001", "MEM-004", "weights take 26,464 of"},
    {"stores three moments", "MEM-005", "MEM-005", "takes 30240 bytes more"},
    {"stores one moment", "MEM-005", "MEM-005", "takes 10080 bytes more"},
    {"saves one moment", "MEM-005", "MEM-005", "saves 2520 elements of moments"},
    {"saves too few of small models", "MEM-EXACT-001", "MEM-EXACT-001",
     "V 1 H 2 L 1 A 1 K 1 I 1: elements saved"},
};

ModelSpec llama() {
  ModelSpec m;
  m.vocab = 1000, m.hidden = 48, m.layers = 3, m.heads = 6, m.kv_heads = 2, m.head_dim = 8,
  m.intermediate = 100;
  m.tied = true;
  return m;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_contracts)

BOOST_DATA_TEST_CASE(a_trainer_that_breaks_a_memory_contract_is_detected,
                     boost::unit_test::data::make(kFaults), f) {
  const fake::Outcome o = with(f.fault);
  BOOST_TEST(o.falsified == f.ids);
  BOOST_TEST(has(o.of(f.of).detail, f.says), o.of(f.of).detail);
  BOOST_TEST(has(o.of(f.of).detail, "worst in mode hybrid"), o.of(f.of).detail);
  BOOST_TEST((exit_of(o.results) == Exit::kFalsified));
}

BOOST_AUTO_TEST_CASE(the_runs_own_policy_is_reported_with_its_k_and_does_not_change_the_exit_code) {
  const fake::Outcome o = with("");
  BOOST_TEST(o.falsified == "");
  const Result& r = o.of("MEM-002/run");
  BOOST_TEST((r.status == Status::kFalsified));
  BOOST_TEST(has(r.detail, "recompute = \"none\" (the run's own)"), r.detail);
  BOOST_TEST(r.bound.value() == 1 * 8 * 8 * 10 * 4 * 3);  // M_act * B
  BOOST_TEST((exit_of(o.results) == Exit::kDone));
  BOOST_TEST((with("", "recompute = \"full\"\n").of("MEM-002/run").status == Status::kHeld));
}

BOOST_AUTO_TEST_CASE(named_bytes_are_tested_where_twice_the_sequences_do_not_fit) {
  const fake::Outcome o = with("memory for three sequences");
  BOOST_TEST(o.falsified == "");
  BOOST_TEST(has(o.of("MEM-002").detail, "skipped") == false, o.of("MEM-002").detail);
  fake::TestedTrainers alone("memory for three sequences", "memory for three sequences");
  Context context(runfile::parse_run(kRun, "", "/"), alone);
  const Result r = run_checks(context, select("MEM-002")).front();
  BOOST_TEST((r.status == Status::kHeld), r.detail);
  BOOST_TEST(has(r.detail, "not measured (does not fit) by growth with twice"), r.detail);
}

BOOST_AUTO_TEST_CASE(the_moments_check_is_skipped_for_other_optimizers) {
  const fake::Outcome o = with("stores three moments", "[optimizer]\nname = \"sgd\"\n");
  BOOST_TEST((o.of("MEM-005").status == Status::kSkipped));
  BOOST_TEST(has(o.of("MEM-005").detail, "sgd"), o.of("MEM-005").detail);
}

BOOST_AUTO_TEST_CASE(without_a_trainer_small_models_are_still_enumerated) {
  fake::TestedTrainers s("", "");
  s.unavailable_reason_ = "no driver";
  Context context(runfile::parse_run(kRun, "", "/"), s);
  const Result r = run_checks(context, select("MEM-EXACT-001")).front();
  BOOST_TEST((r.status == Status::kHeld), r.detail);
  BOOST_TEST(has(r.detail, "of 832 models"), r.detail);
  BOOST_TEST(has(r.detail, "no trainer created them: no driver"), r.detail);
}

BOOST_AUTO_TEST_CASE(the_formula_is_exact_or_names_the_parts_it_omits) {
  ModelSpec m = llama();
  BOOST_TEST(broken_assumptions(m) == "");
  BOOST_TEST(contract_parameters(m) == count_parameters(m).total);
  m.kv_heads = 3, m.vocab = 77;
  BOOST_TEST(contract_parameters(m) == count_parameters(m).total);
  m.tied = false;
  BOOST_TEST(broken_assumptions(m) == "an untied head (V*H = 3,696)");
  BOOST_TEST(contract_parameters(m) + 3696 == count_parameters(m).total);
  for (bool ModelSpec::*flag :
       {&ModelSpec::qkv_bias, &ModelSpec::o_bias, &ModelSpec::mlp_bias, &ModelSpec::qk_norm}) {
    ModelSpec with = llama();
    with.*flag = true;
    BOOST_TEST(broken_assumptions(with) != "");
    BOOST_TEST(contract_parameters(with) < count_parameters(with).total);
  }
  m = llama();
  m.head_dim = 16;
  BOOST_TEST(broken_assumptions(m) == "a head_dim of 16, not H/A");
}

BOOST_AUTO_TEST_CASE(bounds_follow_the_equations_of_the_contract) {
  RunSpec r;
  r.seq_len = 100, r.micro_batch = 2;
  BOOST_TEST(contract_activation_bytes(llama(), r) == 3u * 100 * 48 * 10 * 4 * 2);
  BOOST_TEST(measured_k(llama(), r, 2 * contract_activation_bytes(llama(), r)) == 20.0);
  BOOST_TEST(contract_total_bytes(llama(), r, 7, false) == 7u * 16 + 1152000 + (512u << 20));
  r.weight = DType::kBF16, r.master = DType::kF32;
  BOOST_TEST(bytes_per_weight(r, false) == 6u);
  BOOST_TEST(bytes_per_weight(r, true) == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
