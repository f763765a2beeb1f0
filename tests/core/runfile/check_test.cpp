// check_run(): all errors of a run file, each once, without those that only follow from another one.
#include <boost/test/unit_test.hpp>

#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;
using namespace trainhost::runfile;

namespace {

struct Check : testing::Folder {
  std::vector<RunFileError> errors(const std::string& toml, const std::vector<Override>& more = {}) const {
    return check_run(toml, "run.toml", {}, path(), more).errors;
  }
  /// "LINE:COLUMN KEY", or "FILE KEY" without a line, of each error, separated by ", ".
  std::string places(const std::string& toml, const std::vector<Override>& more = {}) const {
    std::string out;
    for (const RunFileError& e : errors(toml, more)) {
      const Where& w = e.error.where();
      out += (out.empty() ? "" : ", ") +
             (w.line ? std::to_string(w.line) + ":" + std::to_string(w.column) : w.file) + " " + e.key;
    }
    return out;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(check, Check)

BOOST_AUTO_TEST_CASE(all_errors_are_reported_by_position) {
  const std::string toml =
      "[train]\nmicro_bach = 8\nsteps = 0\nprecision = \"bf61\"\n\"st eps\" = 4\n[trian]\na = 1\nb = 2\n"
      "[data]\nvalid = [\"nowhere.txt\", \"neither.txt\"]\ntrain = \"nothing.txt\"\ntokenizer = \"t.json\"\n"
      "[memory]\ndevice = \"h100\"\nbudget = 24\n[plugins]\norder = [\"cpu\", \"cpu\"]\n";
  BOOST_TEST(places(toml, {{"train.seed", "x"}, {"optimizer.lrr", "1"}}) ==
             "2:1 train.micro_bach, 3:9 train.steps, 4:13 train.precision, 5:1 train.st eps, 6:2 trian, "
             "10:9 data.valid, 10:9 data.valid, 11:9 data.train, 12:13 data.tokenizer, 14:10 memory.device, "
             "15:10 memory.budget, 17:9 plugins.order, --set train.seed train.seed, --set optimizer.lrr "
             "optimizer.lrr");
}

BOOST_AUTO_TEST_CASE(rules_for_several_keys_are_all_checked) {
  BOOST_TEST(places("[train]\nsteps = 5\nepochs = 2\nearly_stopping = 1\n[optimizer]\nlr = 1e-3\nmin_lr = 1\n"
                    "decay = \"linear\"\ndecay_steps = 3\n[data]\ndtype = \"uint16\"\nvalid = \"v.txt\"\n") ==
             "3:10 train.epochs, 4:18 train.early_stopping, 7:10 optimizer.min_lr, 8:9 optimizer.decay, "
             "9:15 optimizer.decay_steps, 11:9 data.dtype, 12:9 data.valid, 12:9 data.valid");
  // Rules of core/model/run_rules.cpp.
  BOOST_TEST(places("[plan]\nkv_page = 16\n[parallel]\nexpert = 3\nsequence = true\n[data]\nseq_len = 128\n"
                    "[train]\nrecompute_every = 2\n") ==
             "2:11 plan.kv_page, 4:10 parallel.expert, 5:12 parallel.sequence, 9:19 train.recompute_every");
  // Fields of the model, and what depends on a valid model.
  BOOST_TEST(places("[model]\nhidden_size = 97\nattention_bias = true\nmodel_type = \"mistral\"\n"
                    "rope_scaling = {rope_type = \"linear\"}\n") ==
             "2:15 model.hidden_size, 3:18 model.attention_bias, 5:29 model.rope_scaling.rope_type");
  BOOST_TEST(
      places("[train]\nfreeze = [\"nothing\", \"model.layers.9.*\"]\n[memory.estimators]\nlama = \"x\"\n") ==
      "2:10 train.freeze, 2:10 train.freeze, 4:8 memory.estimators.lama");
}

BOOST_AUTO_TEST_CASE(consequences_of_an_error_are_left_out) {
  // data.valid requires data.train, which was given, but is misspelt or has a wrong type.
  write("v.txt", "x");
  BOOST_TEST(places("[data]\ntrian = \"v.txt\"\nvalid = \"v.txt\"\n") == "2:1 data.trian");
  BOOST_TEST(places("[data]\ntrain = 5\nvalid = \"v.txt\"\n") == "2:9 data.train");
  // An unknown table is one error, and what is in it counts as given.
  BOOST_TEST(places("[dta]\ntrain = \"v.txt\"\n[data]\nvalid = \"v.txt\"\n") == "1:2 dta");
  BOOST_TEST(places("[lroa]\nrank = 4\n[plan]\nmode = \"inference\"\n") == "1:2 lroa");
  // A model that is not known.
  BOOST_TEST(
      places("[model]\npreset = \"lama-7b\"\n[train]\nfreeze = \"model.layers.30.*\"\nrecompute_every = 8\n"
             "recompute = \"full\"\n[data]\ntokenizer = \"auto\"\ntrain = \"v.txt\"\n") ==
      "2:10 model.preset");
  BOOST_TEST(places("[model]\nhidden_size = \"1\"\nnum_attention_heads = 5\n") == "2:15 model.hidden_size");
  // The recipe is wrong, not missing.
  BOOST_TEST(places("[plan]\nframework = \"megatron\"\nfp8_recipe = \"e4m3\"\nfp8_weights = true\n") ==
             "3:14 plan.fp8_recipe");
  // A rule without a wrong key is still checked.
  BOOST_TEST(places("[optimizer]\nlr = 1e-3\nmin_lr = 1\nbetas = 5\n") ==
             "3:10 optimizer.min_lr, 4:9 optimizer.betas");
}

BOOST_AUTO_TEST_CASE(unknown_keys_name_the_nearest) {
  const auto all =
      errors("[train]\nmicro_bach = 8\nseq_len = 4\nzzzzzz = 1\nlearning_rate = 1\n[trian]\nx = 1\n");
  std::vector<std::string> nearest;
  for (const RunFileError& e : all) nearest.push_back(e.nearest_key);
  BOOST_TEST(
      nearest == (std::vector<std::string>{"train.micro_batch", "data.seq_len", "", "optimizer.lr", "train"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_run_without_errors_is_the_run_that_is_loaded) {
  write("run.toml", "[train]\nsteps = 7\n[memory]\nbudget = \"2GiB\"\n");
  const CheckedRun checked = check_run(path() / "run.toml", {{"data.seq_len", "64"}});
  BOOST_TEST(checked.errors.size() == 0u);
  const RunConfig loaded = load_run(path() / "run.toml", {{"data.seq_len", "64"}});
  BOOST_TEST(checked.run.resolved() == loaded.resolved());
  BOOST_TEST(checked.run.file == loaded.file);
}

BOOST_AUTO_TEST_CASE(text_that_is_not_toml_is_one_error) {
  BOOST_TEST(places("[train]\nsteps = \n[data\n") == "2:9 ");
  const auto missing = check_run(path() / "none.toml").errors;
  BOOST_TEST(missing.size() == 1u);
  BOOST_TEST(missing.front().error.full().find("does not exist") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
