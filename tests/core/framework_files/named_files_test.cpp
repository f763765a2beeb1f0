// core/framework_files: the JSON of DeepSpeed that another file names, or has inside.
#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using framework_files::read_files;
using testing::by_key;
using testing::Folder;

namespace {

constexpr const char* kStage2 = R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})";
const std::vector<runfile::Override> kGiven = {
    {"model.preset", "gpt2"}, {"data.seq_len", "64"}, {"train.micro_batch", "2"}, {"parallel.data", "2"}};

std::string write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_files_named_files)

BOOST_AUTO_TEST_CASE(a_named_deepspeed_file_is_read_relative_to_the_file_that_names_it) {
  const Folder folder;
  write(folder.path() / "jobs/ds/z2.json", kStage2);
  const std::pair<const char*, const char*> files[] = {
      {"trainer.yaml", "per_device_train_batch_size: 2\nbf16: true\ndeepspeed: ds/z2.json\n"},
      {"axolotl.yaml", "base_model: gpt2\nmicro_batch_size: 2\ndeepspeed: ds/z2.json\n"},
      {"factory.yaml", "stage: sft\nfinetuning_type: full\nbf16: true\ndeepspeed: ds/z2.json\n"},
      {"accelerate.yaml",
       "distributed_type: DEEPSPEED\nnum_processes: 2\n"
       "deepspeed_config:\n  deepspeed_config_file: ds/z2.json\n"}};
  for (const auto& [name, text] : files) {
    const auto s = read_files({write(folder.path() / "jobs" / name, text)}, kGiven);
    BOOST_TEST(by_key(s).at("parallel.zero") == "2 @1", name);
    BOOST_TEST(by_key(s).at("plan.framework") == "deepspeed", name);
    BOOST_TEST((s.keys[2].use == runfile::KeyUse::kUsed), name);
    BOOST_TEST(s.keys.back().where.file.ends_with("z2.json"), name);
  }
}

BOOST_AUTO_TEST_CASE(a_deepspeed_file_of_the_command_line_replaces_the_named_one) {
  const Folder folder;
  const std::string job =
      write(folder.path() / "t.yaml", "per_device_train_batch_size: 2\ndeepspeed: nowhere.json\n");
  const std::string other = write(folder.path() / "z3.json", R"({"zero_optimization": {"stage": 3}})");
  BOOST_TEST(by_key(read_files({job, other}, kGiven)).at("parallel.zero") == "3 @1");
}

BOOST_AUTO_TEST_CASE(a_named_file_that_is_missing_is_an_error_with_file_line_and_key) {
  const Folder folder;
  const std::string job =
      write(folder.path() / "t.yaml", "per_device_train_batch_size: 2\ndeepspeed: ds/z2.json\n");
  BOOST_CHECK_EXCEPTION(read_files({job}, kGiven), Error, [&](const Error& e) {
    BOOST_TEST(e.what() == "deepspeed = \"ds/z2.json\": no such file in " + folder.path().string() +
                               ", a folder above it or the current directory");
    BOOST_TEST(e.hint() == "give the file too: --from " + job + " deepspeed:FILE; or remove the key");
    return e.where().file == job && e.where().line == 2;
  });
}

BOOST_AUTO_TEST_CASE(a_table_of_deepspeed_inside_a_file_is_read) {
  const Folder folder;
  const std::string job =
      write(folder.path() / "t.yaml",
            "per_device_train_batch_size: 2\nbf16: true\ndeepspeed:\n  zero_optimization:\n    stage: 1\n");
  const auto s = by_key(read_files({job}, kGiven));
  BOOST_TEST(s.at("parallel.zero") == "1 @5");
  BOOST_TEST(s.at("plan.master") == "fp32");
}

BOOST_AUTO_TEST_CASE(a_named_file_of_fsdp_settings_is_read_as_if_its_keys_were_below_fsdp_config) {
  const Folder folder;
  write(folder.path() / "fsdp.json",
        R"({"reshard_after_forward": false, "fsdp_versoin": 2, "offload_params": true})");
  const std::string job = write(folder.path() / "t.yaml",
                                "per_device_train_batch_size: 2\nfsdp: full_shard\nfsdp_config: fsdp.json\n");
  const auto s = read_files({job}, kGiven);
  BOOST_TEST(by_key(s).at("plan.offload_weights") == "cpu @1");
  const auto misspelt = std::ranges::find_if(
      s.keys, [](const runfile::FileKey& k) { return k.key == "fsdp_config.fsdp_versoin"; });
  BOOST_REQUIRE((misspelt != s.keys.end()));
  BOOST_TEST((misspelt->use == runfile::KeyUse::kNotUnderstood));
  BOOST_TEST(misspelt->where.file.ends_with("fsdp.json"));
  const std::string missing =
      write(folder.path() / "m.yaml",
            "per_device_train_batch_size: 2\nfsdp: full_shard\nfsdp_config: nowhere.json\n");
  BOOST_CHECK_EXCEPTION(read_files({missing}, kGiven), Error, [](const Error& e) {
    return std::string(e.what()).starts_with("fsdp_config = \"nowhere.json\": no such file in ") &&
           e.hint() == "correct the path, or write the keys of that file below fsdp_config";
  });
}

BOOST_AUTO_TEST_CASE(a_script_names_a_file_in_the_current_directory) {
  const Folder folder;
  write(folder.path() / "z2.json", kStage2);
  for (const char* here : {"`pwd`/", "$(pwd)/", "$PWD/", "${PWD}/", ""}) {
    const std::string script =
        write(folder.path() / "t.sh", std::string("deepspeed t.py --per_device_train_batch_size 2 --bf16 "
                                                  "--num_train_epochs 1 --deepspeed ") +
                                          here + "z2.json\n");
    BOOST_TEST(by_key(read_files({script}, kGiven)).at("parallel.zero") == "2 @1", here);
  }
}

BOOST_AUTO_TEST_SUITE_END()
