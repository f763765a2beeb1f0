// Which device a run uses on a machine with several GPUs or with MIG slices, by CUDA_VISIBLE_DEVICES and
// plugin.cuda.device; and that it is named with its UUID.
#include "tests/plugins/cuda/front_end/front_end_fixture.hpp"

using namespace trainhost;
using namespace trainhost::test;
using namespace trainhost::test::front_end;

namespace {

// UUIDs of the first three devices of the fake driver.
const std::string kUuids[] = {"64656667-6869-6a6b-6c6d-6e6f70717273", "65666768-696a-6b6c-6d6e-6f7071727374",
                              "66676869-6a6b-6c6d-6e6f-707172737475"};

/// What probe() logs about the device: "device 0 of 2: Fake H200, GPU-...".
std::string device_line(std::map<std::string, std::string> options = {}) {
  const Answer a = probe("good", std::move(options));
  BOOST_TEST(a.status == TH_OK, a.message);
  return a.lines.empty() ? a.message : a.lines.back().substr(0, a.lines.back().find(';'));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_visible_devices)

BOOST_AUTO_TEST_CASE(indices_and_uuids_select_devices_in_their_order) {
  Machine machine{{"FAKE_CUDA_DEVICES", "3"}};
  BOOST_TEST(device_line() == "device 0 of 3: Fake H200, GPU-" + kUuids[0]);
  machine.set("CUDA_VISIBLE_DEVICES", "2,0");
  BOOST_TEST(device_line() == "device 0 of 2: Fake H200 2, GPU-" + kUuids[2]);
  BOOST_TEST(device_line({{"device", "1"}}) == "device 1 of 2: Fake H200, GPU-" + kUuids[0]);
  for (const std::string& value :
       {"GPU-" + kUuids[1], "GPU-" + kUuids[1].substr(0, 8), std::string("1,7,0")}) {
    machine.set("CUDA_VISIBLE_DEVICES", value);
    BOOST_TEST(device_line() == "device 0 of 1: Fake H200 1, GPU-" + kUuids[1], value);
    BOOST_TEST(memory().free == 140000000000u + (1u << 20), value);  // matched by UUID, not by index
  }
}

BOOST_AUTO_TEST_CASE(a_mig_slice_has_the_uuid_of_the_slice) {
  Machine machine{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_MIG", "1"}, {"FAKE_NVML_BY", "mig"}};
  BOOST_TEST(device_line() == "device 0 of 1: Fake H200 MIG 1g.18gb, MIG-" + kUuids[0]);
  machine.set("CUDA_VISIBLE_DEVICES", "MIG-" + kUuids[1]);
  BOOST_TEST(device_line() == "device 0 of 1: Fake H200 1 MIG 1g.18gb, MIG-" + kUuids[1]);
  BOOST_TEST(memory().free == 140000000000u + (1u << 20));
  machine.set("TRAINHOST_CUDA_NVML", "libno-nvml.so");  // then the name of the device tells
  BOOST_TEST(device_line() == "device 0 of 1: Fake H200 1 MIG 1g.18gb, MIG-" + kUuids[1]);
}

BOOST_AUTO_TEST_CASE(a_driver_without_uuids_names_the_device_alone) {
  Machine machine{{"FAKE_CUDA_UUID", "0"}};
  BOOST_TEST(device_line() == "device 0 of 1: Fake H200");
}

BOOST_AUTO_TEST_CASE(a_device_without_tensor_cores_is_refused_and_another_can_be_selected) {
  Machine machine{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_CC", "7.5,9.0"}};
  check_unavailable(
      probe(),
      "device 0 (Fake H200) has compute capability 7.5, the cuda trainer needs 8.0 or newer: tensor "
      "cores for bf16 and TF32 (Ampere)",
      "plugin.cuda.device selects another device");
  BOOST_TEST(device_line({{"device", "1"}}) == "device 1 of 2: Fake H200 1, GPU-" + kUuids[1]);
}

BOOST_AUTO_TEST_CASE(an_instance_answers_which_device_and_engine_it_has) {
  Machine machine{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_ENGINE_CREATES", "1"}};
  const th_trainer& t = *front().trainer;
  const auto create = [&](std::map<std::string, std::string> options) {
    Host host(std::move(options));
    th_error e = empty_error();
    th_trainer_inst* i = nullptr;
    const ModelSpec m = small_model();
    const RunSpec r = small_run();
    const th_model model = trainhost::abi::to_c(m);
    const th_run run = trainhost::abi::to_c(r);
    check(t.create(&host, 0, &model, &run, &i, &e), e);
    return i;
  };
  th_trainer_inst *first = create({}), *second = create({{"device", "1"}});
  BOOST_TEST(std::string(t.info(first, "device_name")) == "Fake H200");
  BOOST_TEST(std::string(t.info(first, "device_uuid")) == "GPU-" + kUuids[0]);
  BOOST_TEST(std::string(t.info(second, "device_name")) == "Fake H200 1");
  BOOST_TEST(std::string(t.info(second, "device_uuid")) == "GPU-" + kUuids[1]);
  BOOST_TEST(std::string(t.info(second, "engine")) == "cuda-cublas-13.so");
  BOOST_TEST(std::string(t.info(second, "kernel_set")) == "fake");  // answered by the engine
  BOOST_TEST(t.info(second, "no such fact") == nullptr);
  BOOST_TEST(t.info(second, nullptr) == nullptr);
  t.destroy(first);
  BOOST_TEST(std::string(t.info(second, "device_name")) == "Fake H200 1");
  t.destroy(second);
}

BOOST_AUTO_TEST_SUITE_END()
