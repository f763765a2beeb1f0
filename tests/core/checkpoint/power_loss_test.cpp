// Power fails at a random time of a run that saves checkpoints, and unsynced data are lost in part: the last
// checkpoint whose save() returned, or a later one, must verify. A program that omits a kind of sync fails
// this test.
#include "tests/core/checkpoint/disk_log.hpp"
#include "tests/core/checkpoint/store_fixture.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

/// Disk images of each test case; POWER_LOSS_IMAGES=N sets the number (`tools/faults --only F5`).
const int kImages = number_of_cases("POWER_LOSS_IMAGES", 1000);

void record(const fs::path& run, DiskLog& log) {
  Store store(run, 2);
  for (std::uint64_t step : {1, 2, 3, 3, 4, 5}) {  // one step twice, for the exchange
    save_step(store, step);
    log.promise(step);
  }
  log.stop();
}

/// Number of disk images that violate the guarantee.
int broken_promises(const DiskLog& log, const fs::path& at) {
  std::mt19937 random(3);
  int broken = 0;
  for (int i = 0; i < kImages; ++i) {
    fs::remove_all(at);
    std::uint64_t promised = log.image(random() % (log.size() + 1), random, at), found = 0;
    try {
      found = newest_step(at / "run");
    } catch (const Error&) {
    }
    broken += found < promised;
  }
  return broken;
}

struct Run {
  TempDir top;
  fs::path disk = top / "disk", images = top / "image";
  Run() { fs::create_directory(disk); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_power_loss, Run)

BOOST_AUTO_TEST_CASE(after_a_power_loss_the_promised_checkpoint_verifies) {
  DiskLog log(disk);
  record(disk / "run", log);
  BOOST_TEST(broken_promises(log, images) == 0);
  BOOST_TEST_MESSAGE("disk images: " << kImages << " of a log of " << log.size() << " operations");
}

BOOST_AUTO_TEST_CASE(after_a_power_loss_a_model_directory_and_its_other_files_are_complete) {
  const std::vector<TensorInfo> tensors{info("model.a", 3)};
  DiskLog log(disk);
  for (std::uint64_t v : {1, 2, 3}) {
    write_model_dir(
        disk / "out/model", "{\"v\":" + std::to_string(v) + "}", tensors,
        [&](const TensorSink& sink) { sink("model.a", 0, std::vector<float>(3, static_cast<float>(v))); });
    if (v == 1) write_file_atomically(disk / "out/model/notes", "mine");
    log.promise(v);
  }
  log.stop();
  std::mt19937 random(4);
  for (int i = 0; i < kImages; ++i) {
    fs::remove_all(images);
    std::uint64_t promised = log.image(random() % (log.size() + 1), random, images);
    if (promised == 0) continue;
    std::string v = read_file(images / "out/model/config.json");
    BOOST_TEST_REQUIRE(v.size() == 7u);
    BOOST_TEST(static_cast<std::uint64_t>(v[5] - '0') >= promised);
    std::vector<float> scratch(3);
    WeightSource(images / "out/model")
        .stream(tensors[0], scratch, [&](std::uint64_t, std::span<const float> w) {
          BOOST_TEST(w[2] == static_cast<float>(v[5] - '0'));
        });
    bool kept = false;  // in the model directory, or still in the previous one; never lost
    for (const auto& e : fs::recursive_directory_iterator(images))
      kept = kept || e.path().filename() == "notes";
    BOOST_TEST(kept);
  }
}

BOOST_AUTO_TEST_CASE(without_syncs_a_power_loss_loses_checkpoints) {
  for (bool directories : {true, false}) {
    const fs::path here = disk / (directories ? "d" : "f");
    fs::create_directory(here);
    DiskLog log(here);
    record(here / "run", log);
    log.forget_syncs(directories);
    BOOST_TEST(broken_promises(log, images) > 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
