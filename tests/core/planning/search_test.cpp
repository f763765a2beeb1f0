// search_layouts(): fixed keys keep their values, and the settings of every row reproduce its layout.
#include "core/planning/search_layouts.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/planning/simulate_layout.hpp"

using namespace trainhost;

namespace {

using Overrides = std::vector<runfile::Override>;

const Overrides kRun = {
    {"memory.device", "h100-80gb"}, {"train.precision", "bf16"}, {"data.seq_len", "4096"}};

planning::SearchResult ask(const Overrides& more, planning::SearchRequest request,
                           const std::string& model = "llama-3-8b") {
  Overrides all = kRun;
  all.insert(all.end(), more.begin(), more.end());
  for (const runfile::Override& o : more) request.fixed.insert(o.key);
  return planning::search_layouts(runfile::run_for_model(model, all), request);
}

planning::SearchRequest request(std::uint32_t devices, std::uint64_t batch) {
  planning::SearchRequest r;
  r.devices = devices, r.global_batch = batch, r.top = 5;
  return r;
}

/// The searched run with the settings of a row applied.
runfile::RunConfig run_of(const planning::RankedLayout& row, const std::string& model = "llama-3-8b") {
  Overrides all = kRun;
  for (const std::string& s : row.settings) {
    const std::string word = s.substr(std::string("--set ").size());
    all.push_back({word.substr(0, word.find('=')), word.substr(word.find('=') + 1)});
  }
  return runfile::run_for_model(model, all);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(search)

BOOST_AUTO_TEST_CASE(settings_of_every_row_reproduce_its_bytes_and_seconds) {
  const planning::SearchResult v = ask({}, request(8, 32));
  BOOST_REQUIRE(!v.best.empty());
  BOOST_REQUIRE(!v.pareto.empty());
  std::vector<planning::RankedLayout> rows = v.best;
  rows.insert(rows.end(), v.pareto.begin(), v.pareto.end());
  for (const planning::RankedLayout& row : rows) {
    const runfile::RunConfig c = run_of(row);
    const model::Architecture a = model::from_model(c.model);
    parallel::validate(a, c.run);
    const parallel::Numbers n = parallel::stage_numbers(a, c.run, parallel::worst_stage(a, c.run));
    BOOST_TEST(n.tier(Tier::kDevice) == row.device_bytes);
    BOOST_TEST(n.tier(Tier::kPinned) + n.tier(Tier::kHost) == row.host_bytes);
    const parallel::Times t =
        parallel::TimeModel(a, c.run, parallel::machine_of(*find_device_preset("h100-80gb"), c.run))
            .step(c.run);
    BOOST_TEST(t.step == row.closed_form_seconds);
    const auto simulated = planning::simulate_layout(
        c.model, c.run, parallel::machine_of(*find_device_preset("h100-80gb"), c.run));
    BOOST_TEST(row.simulated == simulated.has_value());
    BOOST_TEST(row.step_seconds == (simulated ? simulated->seconds : t.step));
    const double tokens = 32.0 * 4096;
    BOOST_TEST(std::abs(row.tokens_per_second * row.step_seconds - tokens) < 1e-6 * tokens);
    BOOST_TEST(row.data * row.tensor * row.pipeline * row.context == 8u);
    BOOST_TEST(row.data * row.micro_batch * row.accumulate == 32u);
    BOOST_TEST(row.device_bytes <= v.budget_bytes);
    double sum = 0;
    for (const auto& [name, s] : row.seconds) sum += s;
    BOOST_TEST(std::abs(sum - row.step_seconds) < 1e-9 * row.step_seconds);
  }
}

BOOST_AUTO_TEST_CASE(best_rows_are_sorted_by_time_and_the_pareto_front_descends) {
  const planning::SearchResult v = ask({}, request(16, 64));
  for (std::size_t i = 1; i < v.best.size(); ++i)
    BOOST_TEST(v.best[i - 1].step_seconds <= v.best[i].step_seconds);
  for (std::size_t i = 1; i < v.pareto.size(); ++i) {
    BOOST_TEST(v.pareto[i - 1].device_bytes < v.pareto[i].device_bytes);
    BOOST_TEST(v.pareto[i - 1].step_seconds > v.pareto[i].step_seconds);
  }
  BOOST_TEST(v.pareto.back().step_seconds == v.best.front().step_seconds);
}

/// Fixes the keys that have no step program.
const Overrides kWithProgram = {{"parallel.pipeline", "1"},         {"parallel.context", "1"},
                                {"train.recompute_every", "1"},     {"plan.offload_weights", "none"},
                                {"plan.offload_optimizer", "none"}, {"plan.offload_activations", "none"}};

// The bounds hold for what was seen: 0.82 to 1.06 of it, on 8 to 512 GPUs. The step program
// overlaps the sums of TP ranks with gradients of weights, and recomputes less than a whole forward pass.
BOOST_AUTO_TEST_CASE(simulated_steps_are_near_the_closed_form_and_order_the_list) {
  for (const std::uint32_t devices : {8u, 64u, 512u}) {
    planning::SearchRequest q = request(devices, 1024);
    q.top = 40;
    const planning::SearchResult v = ask(kWithProgram, q);
    BOOST_TEST(v.simulated > 10u);
    double fastest = 1e9;
    for (std::size_t i = 0; i < v.best.size(); ++i) {
      const planning::RankedLayout& row = v.best[i];
      if (i > 0) BOOST_TEST(v.best[i - 1].step_seconds <= row.step_seconds);
      fastest = std::min(fastest, row.closed_form_seconds);
      if (!row.simulated) continue;
      const double ratio = row.step_seconds / row.closed_form_seconds;
      BOOST_TEST((ratio > 0.8 && ratio < 1.1), devices << " devices: " << ratio << " TP " << row.tensor
                                                       << " ZeRO " << row.zero << " acc " << row.accumulate);
    }
    // The fastest by simulation is among the fastest of the closed form.
    BOOST_TEST(v.best.front().closed_form_seconds < 1.05 * fastest);
  }
}

BOOST_AUTO_TEST_CASE(layouts_without_a_step_program_keep_the_closed_form) {
  const auto first_simulated = [](const Overrides& more, const std::string& model) {
    Overrides all = kWithProgram;
    for (const runfile::Override& o : more) {
      std::erase_if(all, [&](const runfile::Override& had) { return had.key == o.key; });
      all.push_back(o);
    }
    const planning::SearchResult v = ask(all, request(8, 32), model);
    BOOST_REQUIRE(!v.best.empty());
    return v.best.front().simulated;
  };
  BOOST_TEST(first_simulated({}, "llama-3-8b"));
  BOOST_TEST(!first_simulated({}, "gpt2"));
  BOOST_TEST(!first_simulated({{"parallel.pipeline", "2"}}, "llama-3-8b"));
  BOOST_TEST(!first_simulated({{"plan.framework", "megatron"}}, "llama-3-8b"));
  BOOST_TEST(!first_simulated({{"parallel.zero", "1"}, {"optimizer.name", "adafactor"}}, "llama-3-8b"));
}

BOOST_AUTO_TEST_CASE(threads_and_pruning_do_not_change_the_result) {
  planning::SearchRequest r = request(16, 64);
  r.threads = 1;
  const planning::SearchResult one = ask({}, r);
  r.threads = 5, r.every = true;
  const planning::SearchResult five = ask({}, r);
  BOOST_REQUIRE_EQUAL(one.best.size(), five.best.size());
  BOOST_REQUIRE_EQUAL(one.pareto.size(), five.pareto.size());
  for (std::size_t i = 0; i < one.best.size(); ++i)
    BOOST_TEST(one.best[i].settings == five.best[i].settings, boost::test_tools::per_element());
  for (std::size_t i = 0; i < one.pareto.size(); ++i)
    BOOST_TEST(one.pareto[i].settings == five.pareto[i].settings, boost::test_tools::per_element());
  BOOST_TEST(five.evaluated == five.layouts);
  BOOST_TEST(one.layouts == five.layouts);
}

BOOST_AUTO_TEST_CASE(a_fixed_key_keeps_its_value) {
  const planning::SearchResult v =
      ask({{"parallel.tensor", "4"}, {"train.recompute", "full"}, {"plan.offload_optimizer", "none"}},
          request(8, 32));
  BOOST_REQUIRE(!v.best.empty());
  for (const planning::RankedLayout& row : v.best) {
    BOOST_TEST(row.tensor == 4u);
    BOOST_TEST(row.recompute == "full");
    BOOST_TEST(row.offload.find("optimizer") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(the_default_sequence_is_that_of_the_model_up_to_2048_with_a_note) {
  const Overrides open = {{"memory.device", "h100-80gb"}, {"train.precision", "bf16"}};
  for (const auto& [model, tokens] : {std::pair{"llama-3-8b", 2048u}, {"gpt2", 1024u}}) {
    const planning::SearchResult v =
        planning::search_layouts(runfile::run_for_model(model, open), request(8, 32));
    BOOST_TEST(v.seq_len == tokens);
    BOOST_TEST(v.notes.front().find("data.seq_len is not set") != std::string::npos, v.notes.front());
    BOOST_REQUIRE(!v.best.empty());
    BOOST_TEST(v.best.front().settings.front() == "--set data.seq_len=" + std::to_string(tokens));
  }
  const planning::SearchResult given =
      planning::search_layouts(runfile::run_for_model("gpt2", kRun), request(8, 32));
  BOOST_TEST(given.seq_len == 4096u);
  BOOST_TEST(given.best.front().settings.front().starts_with("--set parallel."));
}

BOOST_AUTO_TEST_CASE(fixed_keys_keep_their_values_in_a_small_search_space) {
  const planning::SearchResult v =
      ask({{"parallel.pipeline", "4"}, {"parallel.interleave", "2"}, {"parallel.zero", "1"}}, request(8, 32));
  BOOST_REQUIRE(!v.best.empty());
  for (const planning::RankedLayout& row : v.best)
    BOOST_TEST((row.pipeline == 4u && row.interleave == 2u && row.zero == 1u));
}

BOOST_AUTO_TEST_CASE(a_note_names_what_the_closed_form_does_not_know_of_a_framework) {
  const auto notes_with = [](const Overrides& more, const std::string& words) {
    const planning::SearchResult v = ask(more, request(8, 32));
    return std::ranges::count_if(
        v.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
  };
  const Overrides framework = {{"plan.framework", "megatron"}};
  Overrides products = framework;
  products.push_back({"plan.fp8_recipe", "tensorwise"});
  BOOST_TEST(notes_with(framework, "trainhost plan --for megatron") == 1);
  BOOST_TEST(notes_with(framework, "plan.fp8_recipe") == 0);
  BOOST_TEST(notes_with(products, "plan.fp8_recipe = tensorwise: time is that of products in fp8") == 1);
}

// What its plan would refuse is no answer.
BOOST_AUTO_TEST_CASE(layouts_are_those_that_the_replay_of_a_framework_describes) {
  const auto rows = [](const Overrides& o, const auto& allowed) {
    const planning::SearchResult v = ask(o, request(8, 32));
    BOOST_TEST(!v.best.empty());
    for (const auto* list : {&v.best, &v.pareto})
      for (const planning::RankedLayout& row : *list) BOOST_TEST(allowed(row));
    return std::ranges::any_of(
        v.notes, [](const std::string& n) { return n.find("are left out; --set KEY") != n.npos; });
  };
  const auto data_parallel = [](const planning::RankedLayout& r) {
    return r.tensor * r.pipeline * r.context * r.expert == 1 && r.recompute != "selective" &&
           r.recompute_every == 1;
  };
  BOOST_TEST(rows({{"plan.framework", "transformers"}},
                  [&](const auto& r) { return data_parallel(r) && r.zero != 1; }));
  BOOST_TEST(rows({{"plan.framework", "deepspeed"}},
                  [&](const auto& r) { return data_parallel(r) && r.zero >= 1; }));
  BOOST_TEST(!rows({{"plan.framework", "megatron"}}, [](const auto& r) { return r.zero <= 1; }));
  BOOST_TEST(!rows({{"plan.framework", "torchtitan"}}, [](const auto& r) { return r.zero >= 2; }));
  // What the user asks for is searched.
  BOOST_TEST(rows({{"plan.framework", "transformers"}, {"parallel.tensor", "2"}},
                  [](const auto& r) { return r.tensor == 2; }));
}

BOOST_AUTO_TEST_CASE(an_fp8_recipe_shortens_the_step_and_keeps_the_memory) {
  const Overrides layout = {{"parallel.data", "8"},
                            {"parallel.zero", "3"},
                            {"train.micro_batch", "1"},
                            {"train.recompute", "full"},
                            {"plan.framework", "megatron"}};
  Overrides products = layout;
  products.push_back({"plan.fp8_recipe", "delayed"});
  const planning::SearchResult wide = ask(layout, request(8, 32)), narrow = ask(products, request(8, 32));
  BOOST_REQUIRE((!wide.best.empty() && !narrow.best.empty()));
  BOOST_TEST(narrow.best.front().device_bytes == wide.best.front().device_bytes);
  BOOST_TEST(narrow.best.front().step_seconds < 0.9 * wide.best.front().step_seconds);
  BOOST_TEST(narrow.best.front().step_seconds > 0.6 * wide.best.front().step_seconds);
}

BOOST_AUTO_TEST_CASE(an_impossible_fixed_key_is_rejected_with_its_reason) {
  const auto rejected = [](const Overrides& o, const std::string& message) {
    BOOST_CHECK_EXCEPTION(ask(o, request(8, 32)), Error, [&](const Error& e) {
      return e.code() == Exit::kUsage && e.full().find(message) != std::string::npos;
    });
  };
  rejected({{"parallel.expert", "2"}, {"parallel.data", "2"}},
           "parallel.expert = 2, but llama-3-8b has no experts; use 1");
  rejected({{"parallel.tensor", "16"}}, "--set parallel.tensor = 16 does not divide 8 devices; use 8");
  rejected({{"parallel.data", "3"}}, "parallel.data = 3 does not divide 8 devices; use 2 or 4");
  rejected({{"train.micro_batch", "5"}},
           "train.micro_batch = 5 does not divide 32 sequences per step (--global-batch); use 4 or 8");
}

// Each key is possible, but not both together: the result is empty, without an error.
BOOST_AUTO_TEST_CASE(keys_that_exclude_each_other_are_named_with_the_nearest_values) {
  const auto note_of = [](const planning::SearchResult& v) {
    BOOST_TEST(v.layouts == 0u);
    const auto note =
        std::ranges::find_if(v.notes, [](const std::string& n) { return n.starts_with("no layout"); });
    return note == v.notes.end() ? std::string() : *note;
  };
  const std::string with = " with 16 devices and 16 sequences per step; use ";
  BOOST_TEST(note_of(ask({{"parallel.tensor", "8"}, {"parallel.data", "4"}}, request(16, 16))) ==
             "no layout has parallel.tensor = 8 and parallel.data = 4" + with +
                 "parallel.tensor = 4, or parallel.data = 2");
  // Of a run that is valid: the searched data-parallel ranks are what 4 stages leave.
  planning::SearchRequest experts = request(16, 16);
  experts.fixed = {"parallel.pipeline", "parallel.expert"};
  const runfile::RunConfig mixtral =
      runfile::run_for_model("mixtral-8x7b-v0.1", {{"memory.device", "h100-80gb"},
                                                   {"parallel.pipeline", "4"},
                                                   {"parallel.expert", "8"},
                                                   {"parallel.data", "8"}});
  BOOST_TEST(note_of(planning::search_layouts(mixtral, experts)) ==
             "no layout has parallel.pipeline = 4 and parallel.expert = 8" + with +
                 "parallel.pipeline = 2, or parallel.expert = 4");
  // No single value is enough.
  BOOST_TEST(note_of(ask({{"parallel.tensor", "16"}, {"parallel.pipeline", "16"}, {"parallel.data", "16"}},
                         request(16, 16)))
                 .starts_with("no layout exists for 16 devices and 16 sequences per step: heads"));
}

BOOST_AUTO_TEST_CASE(without_a_fit_the_closest_layout_and_its_excess_are_named) {
  const planning::SearchResult v = ask({{"memory.budget", "1GiB"}}, request(1, 1));
  BOOST_TEST(v.best.empty());
  BOOST_TEST(v.fitting == 0u);
  BOOST_REQUIRE(!v.notes.empty());
  bool found = false;
  for (const std::string& n : v.notes)
    found = found || (n.find("closest layout is") != n.npos && n.find("over the budget") != n.npos);
  BOOST_TEST(found);
  const planning::SearchResult host =
      ask({{"memory.budget", "60GiB"}, {"memory.host_budget", "1GiB"}}, request(1, 1));
  BOOST_TEST(host.best.empty());
  BOOST_TEST(host.notes.front().find("of device memory") != std::string::npos, host.notes.front());
}

BOOST_AUTO_TEST_CASE(runs_that_cannot_be_searched_are_rejected) {
  const auto fails = [](const Overrides& o, const std::string& part) {
    BOOST_CHECK_EXCEPTION(
        planning::search_layouts(runfile::run_for_model("llama-3-8b", o), request(8, 8)), Error,
        [&](const Error& e) { return std::string(e.full()).find(part) != std::string::npos; });
  };
  fails({}, "--device=NAME");
  fails({{"memory.device", "h100-80gb"}, {"plan.mode", "inference"}}, "inference");
}

BOOST_AUTO_TEST_CASE(an_empty_search_space_is_explained) {
  // 7 ranks divide neither 32 heads nor 32 sequences, and the pipeline is fixed at 1.
  const planning::SearchResult v = ask({{"parallel.pipeline", "1"}}, request(7, 32));
  BOOST_TEST(v.layouts == 0u);
  BOOST_REQUIRE(!v.notes.empty());
  BOOST_TEST(v.notes.front().find("no layout") != std::string::npos);
}

// What is listed: no layout twice with its ranks divided between data and context.
BOOST_AUTO_TEST_CASE(layouts_that_differ_in_context_ranks_alone_are_listed_once) {
  planning::SearchRequest q = request(64, 512);
  q.top = 20;
  const planning::SearchResult v = ask({{"data.seq_len", "2048"}}, q);
  BOOST_REQUIRE(v.best.size() == 20u);
  for (const planning::RankedLayout& a : v.best)
    for (const planning::RankedLayout& b : v.best)
      if (a.context < b.context && a.data * a.context == b.data * b.context && a.tensor == b.tensor &&
          a.pipeline == b.pipeline && a.zero == b.zero && a.accumulate == b.accumulate &&
          a.recompute == b.recompute && a.micro_batch * b.context == b.micro_batch * a.context)
        BOOST_TEST(a.step_seconds > 1.02 * b.step_seconds);
}

BOOST_AUTO_TEST_CASE(offload_needs_a_limit_of_host_memory_or_nothing_else_that_fits) {
  const Overrides small = {{"memory.device", "rtx-4090"}};
  const auto offloads = [](const planning::SearchResult& v) {
    BOOST_REQUIRE(!v.best.empty());
    return std::ranges::any_of(v.best, [](const auto& r) { return !r.offload.empty(); });
  };
  BOOST_TEST(!offloads(ask(small, request(8, 64))));
  BOOST_TEST(offloads(ask({{"memory.device", "rtx-4090"}, {"memory.host_budget", "64GiB"}}, request(8, 64))));
  BOOST_TEST(offloads(ask(small, request(2, 64))));
  BOOST_TEST(offloads(ask({{"memory.device", "rtx-4090"}, {"plan.offload_weights", "cpu"}}, request(8, 64))));
}

BOOST_AUTO_TEST_SUITE_END()
