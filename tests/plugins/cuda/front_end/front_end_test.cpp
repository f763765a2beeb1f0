// The CUDA trainer's plugin library with a fake driver, a fake NVML and a fake engine: the message for every
// reason why the trainer cannot be used; free memory without a CUDA context; plans without a driver. Which
// engine is used: engine_choice_test.cpp. Which device: visible_devices_test.cpp.
#include "tests/plugins/cuda/front_end/front_end_fixture.hpp"

using namespace trainhost;
using namespace trainhost::test;
using namespace trainhost::test::front_end;

BOOST_AUTO_TEST_SUITE(cuda_front_end)

BOOST_AUTO_TEST_CASE(a_good_machine_is_usable_and_counts_its_devices) {
  Machine machine{{"FAKE_CUDA_DEVICES", "3"}};
  const Answer a = probe();
  BOOST_TEST(a.status == TH_OK, a.message);
  BOOST_TEST(a.devices == 3u);
}

BOOST_AUTO_TEST_CASE(a_build_without_an_engine_is_unavailable_on_any_machine) {
  Machine machine;
  check_unavailable(probe("no_toolkit"),
                    "this build has no CUDA engine: the CUDA toolkit was not found when it was built",
                    "install the CUDA toolkit");
  check_unavailable(probe("switched_off"),
                    "this build has no CUDA engine: it was configured with TRAINHOST_CUDA=OFF",
                    "TRAINHOST_CUDA=ON");
}

BOOST_AUTO_TEST_CASE(a_missing_driver_is_reported_with_the_message_of_dlopen) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}};
  check_unavailable(probe(),
                    "no NVIDIA driver found: libno-such-driver.so.1: cannot open shared object file: No such "
                    "file or directory",
                    "install the NVIDIA driver");
}

BOOST_AUTO_TEST_CASE(a_library_that_is_no_driver_is_reported_with_the_missing_symbol) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", kStage + "/libfakenvml.so"}};
  check_unavailable(probe(), kStage + "/libfakenvml.so is not a CUDA driver: it does not export cuInit",
                    "reinstall");
}

BOOST_AUTO_TEST_CASE(a_driver_that_fails_to_start_reports_its_code_and_a_hint) {
  Machine machine{{"FAKE_CUDA_INIT", "803"}};
  check_unavailable(
      probe(),
      "the NVIDIA driver failed to start: cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has "
      "unsupported display driver / "
      "cuda driver combination",
      "reboot");
  machine.set("FAKE_CUDA_INIT", "800");
  check_unavailable(
      probe(),
      "the NVIDIA driver failed to start: cuInit returned CUDA_ERROR_NOT_PERMITTED: operation not permitted",
      "/dev/nvidia");
  machine.set("FAKE_CUDA_INIT", "34");
  check_unavailable(probe(), "the NVIDIA driver failed to start: cuInit returned error 34", "stub");
  machine.set("FAKE_CUDA_INIT", "3");
  check_unavailable(probe(), "the NVIDIA driver failed to start: cuInit returned error 3", "forked");
  for (const char* code : {"46", "304", "802", "804", "999", "1"}) {
    machine.set("FAKE_CUDA_INIT", code);
    const Answer a = probe();
    BOOST_TEST(a.native == std::string("cuda ") + code, a.message);
    BOOST_TEST(!a.hint.empty());
  }
}

BOOST_AUTO_TEST_CASE(an_old_driver_is_reported_with_the_required_version) {
  Machine machine{{"FAKE_CUDA_VERSION", "11080"}};
  check_unavailable(probe(), "the NVIDIA driver supports CUDA 11.8, the cuda trainer needs 12.0",
                    "update the NVIDIA driver to R580 or newer; R525 is the oldest that can be used");
  machine.set("FAKE_CUDA_VERSION", "13020");
  BOOST_TEST(probe().status == TH_OK);
}

BOOST_AUTO_TEST_CASE(hidden_devices_are_distinguished_from_missing_ones) {
  Machine machine{{"FAKE_CUDA_INIT", "100"}};
  check_unavailable(probe(), "the NVIDIA driver found no device on this machine");
  machine.set("CUDA_VISIBLE_DEVICES", "");
  machine.set("FAKE_NVML_DEVICES", "2");
  check_unavailable(probe(), "no NVIDIA device is visible: CUDA_VISIBLE_DEVICES=\"\" hides all 2 devices",
                    "unset CUDA_VISIBLE_DEVICES");
  machine.set("CUDA_VISIBLE_DEVICES", "7");
  machine.set("FAKE_NVML_DEVICES", "1");
  check_unavailable(probe(), "no NVIDIA device is visible: CUDA_VISIBLE_DEVICES=\"7\" hides the only device");
  machine.set("FAKE_NVML_DEVICES", "0");
  check_unavailable(probe(),
                    "the NVIDIA driver found no device on this machine; CUDA_VISIBLE_DEVICES=\"7\" is set");
  machine.set("TRAINHOST_CUDA_NVML", "libno-nvml.so");
  check_unavailable(probe(), "no NVIDIA device is visible, possibly because of CUDA_VISIBLE_DEVICES=\"7\"");
  machine.set("FAKE_CUDA_INIT", "0");
  machine.set("FAKE_CUDA_DEVICES", "0");
  check_unavailable(probe(), "no NVIDIA device is visible, possibly because of CUDA_VISIBLE_DEVICES=\"7\"");
}

BOOST_AUTO_TEST_CASE(an_old_device_is_named_with_its_compute_capability) {
  Machine machine{{"FAKE_CUDA_CC", "7.5"}};
  check_unavailable(probe(),
                    "device 0 (Fake H200) has compute capability 7.5, the cuda trainer needs 8.0 or newer: "
                    "tensor cores for "
                    "bf16 and TF32 (Ampere)");
}

BOOST_AUTO_TEST_CASE(a_device_without_code_in_the_engine_gets_a_build_hint) {
  Machine machine{{"FAKE_CUDA_CC", "8.9"}};
  BOOST_TEST(probe().status == TH_OK);  // runs the code for 8.6
  machine.set("FAKE_CUDA_CC", "8.0");
  check_unavailable(
      probe(),
      "cuda-cublas-13.so has no code for compute capability 8.0 of device 0 (Fake H200): it was built for "
      "86-real,90-real",
      "-DTRAINHOST_CUDA_ARCHITECTURES=80-real");
  machine.set("FAKE_CUDA_CC", "10.0");
  check_unavailable(
      probe(),
      "cuda-cublas-13.so has no code for compute capability 10.0 of device 0 (Fake H200): it was built for "
      "86-real,90-real",
      "-DTRAINHOST_CUDA_ARCHITECTURES=100-real");
}

BOOST_AUTO_TEST_CASE(a_full_device_reports_the_missing_bytes) {
  Machine machine{{"FAKE_NVML_FREE", std::to_string(300ull << 20)},
                  {"FAKE_CUDA_TOTAL", std::to_string(80ull << 30)}};
  const Answer a = probe();
  check_unavailable(
      a,
      "device 0 (Fake H200) has 300 MiB of 80.0 GiB free, the cuda trainer needs at least 512 MiB: 212 "
      "MiB short",
      "nvidia-smi");
  BOOST_TEST(a.missing == 212ull << 20);
}

BOOST_AUTO_TEST_CASE(a_device_that_no_process_may_use_is_unavailable) {
  Machine machine{{"FAKE_CUDA_MODE", "2"}};
  check_unavailable(
      probe(), "device 0 (Fake H200) has the compute mode \"prohibited\": no process may use it",
      "`nvidia-smi -i GPU-64656667-6869-6a6b-6c6d-6e6f70717273 -c DEFAULT` changes it, as root");
  // Exclusive: usable unless another process uses it, which only the creation of a context shows.
  machine.set("FAKE_CUDA_MODE", "3");
  BOOST_TEST(probe().status == TH_OK);
}

BOOST_AUTO_TEST_CASE(a_device_that_is_lost_or_must_be_reset_is_unavailable) {
  Machine machine{{"FAKE_NVML_MEMORY", "15"}, {"FAKE_CUDA_DEVICES", "2"}};
  check_unavailable(probe(), "device 0 (Fake H200) has fallen off the bus or cannot be accessed",
                    "reset the GPU or reboot; or plugin.cuda.device selects another device");
  machine.set("FAKE_NVML_MEMORY", "16");
  check_unavailable(probe(), "device 0 (Fake H200) must be reset before it can be used", "reset the GPU");
  machine.set("FAKE_NVML_MEMORY", "999");  // another failure of NVML says nothing about the device
  BOOST_TEST(probe().status == TH_OK);
}

BOOST_AUTO_TEST_CASE(a_failed_driver_query_is_named) {
  Machine machine;
  for (const char* call :
       {"cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"}) {
    machine.set("FAKE_CUDA_FAIL", call);
    check_unavailable(probe(),
                      std::string(call) + " of the NVIDIA driver failed: CUDA_ERROR_UNKNOWN: unknown error");
  }
}

BOOST_AUTO_TEST_CASE(the_option_device_selects_a_device_and_lists_devices_if_invalid) {
  Machine machine{{"FAKE_CUDA_DEVICES", "2"}};
  BOOST_TEST(probe("good", {{"device", "1"}}).status == TH_OK);
  Answer a = probe("good", {{"device", "2"}});
  BOOST_TEST(a.status == TH_E_ARG);
  BOOST_TEST(a.message == "no CUDA device 2; available: 0 (Fake H200), 1 (Fake H200 1)");
  for (const char* text : {"-1", "one", "1x", "", "99999999999"}) {
    a = probe("good", {{"device", text}});
    BOOST_TEST(a.status == TH_E_ARG);
    BOOST_TEST(a.message == std::string("plugin.cuda.device = ") + text +
                                ": expected a device index, 0 for the first device");
  }
}

BOOST_AUTO_TEST_CASE(an_invalid_option_is_an_error_on_every_machine) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}};
  const Answer a = probe("good", {{"mode", "resdient"}});
  BOOST_TEST(a.status == TH_E_ARG);
  BOOST_TEST(a.message == "plugin.cuda.mode = \"resdient\": unknown mode; did you mean 'resident'?");
  BOOST_TEST(a.hint == "use auto, resident, hybrid or streamed");
  const Answer relative = probe("good", {{"products", "choices"}});
  BOOST_TEST(relative.status == TH_E_ARG);
  BOOST_TEST(relative.message == "plugin.cuda.products = \"choices\": expected an absolute path");
  Host host{{"mode", "fast"}};
  BOOST_CHECK_EXCEPTION(front().profile(host, small_model(), small_run()), StatusFailure,
                        [](const StatusFailure& f) { return f.code == TH_E_ARG; });
  BOOST_CHECK_EXCEPTION(front().plan(host, small_model(), small_run()), StatusFailure,
                        [](const StatusFailure& f) { return f.code == TH_E_ARG; });
}

BOOST_AUTO_TEST_CASE(attention_is_checked_and_planned_on_every_machine) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}};
  const Answer a = probe("good", {{"attention", "cudn"}});
  BOOST_TEST(a.status == TH_E_ARG);
  BOOST_TEST(a.message == "plugin.cuda.attention = \"cudn\": unknown value; did you mean 'cudnn'?");
  BOOST_TEST(a.hint == "use auto, own or cudnn");
  Host cudnn{{"attention", "cudnn"}};
  BOOST_CHECK_EXCEPTION(front().plan(cudnn, small_model(), small_run()), StatusFailure,
                        [](const StatusFailure& f) { return f.code == TH_E_UNSUPPORTED; });
}

BOOST_AUTO_TEST_CASE(every_optimizer_is_planned_in_every_mode) {
  RunSpec r = small_run();
  for (const Optimizer o : {Optimizer::kLion, Optimizer::kAdafactor, Optimizer::kMuon, Optimizer::kAdamW8bit})
    for (const char* mode : {"resident", "hybrid", "streamed"}) {
      r.optimizer = o;
      Host host{{"mode", mode}};
      BOOST_TEST(front().plan(host, small_model(), r).total_bytes() > 0u);
    }
}

BOOST_AUTO_TEST_CASE(free_memory_is_matched_to_the_device_by_every_name_it_has) {
  for (const char* by : {"uuid", "mig", "pci"}) {
    Machine machine{{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_NVML_BY", by}};
    BOOST_TEST(memory().free == 140000000000u, by);
    BOOST_TEST(memory({{"device", "1"}}).free == 140000000000u + (1u << 20), by);
    BOOST_TEST(memory({}, 1).free == 140000000000u + (1u << 20), by);
    BOOST_TEST(memory().total == 150000000000u);
  }
  Machine pci{{"FAKE_CUDA_UUID", "0"}, {"FAKE_NVML_BY", "pci"}};
  BOOST_TEST(memory().free == 140000000000u);
}

BOOST_AUTO_TEST_CASE(without_nvml_all_memory_counts_as_free) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"TRAINHOST_CUDA_NVML", "libno-nvml.so"},
                                          {"FAKE_NVML_INIT", "999"},
                                          {"FAKE_NVML_BY", "nothing"}}) {
    Machine machine;
    machine.set(name, value);
    if (value == "nothing") machine.set("FAKE_CUDA_UUID", "0");
    BOOST_TEST(memory().free == 150000000000u, name);
  }
  Machine more{{"FAKE_NVML_FREE", "999000000000"}};
  BOOST_TEST(memory().free == 150000000000u);
}

BOOST_AUTO_TEST_CASE(a_device_name_is_truncated_to_the_buffer) {
  Machine machine;
  Host host;
  th_error e = empty_error();
  char text[16];
  check(device_table().name(&host, 0, text, sizeof text, &e), e);
  BOOST_TEST(std::string(text) == "Fake H200");
  check(device_table().name(&host, 0, text, 5, &e), e);
  BOOST_TEST(std::string(text) == "Fake");
  machine.set("FAKE_CUDA_INIT", "100");
  BOOST_TEST(device_table().name(&host, 0, text, sizeof text, &e) == TH_E_UNAVAILABLE);
}

BOOST_AUTO_TEST_CASE(probing_again_gives_the_same_and_leaves_no_context) {
  Machine machine;
  const int before = calls("cuInit");
  for (int i = 0; i < 200; ++i) {
    BOOST_TEST(probe().status == TH_OK);
    memory();
  }
  BOOST_TEST(calls("cuInit") == before + 400);
  for (const char* name : {"cuCtxCreate", "cuDevicePrimaryCtxRetain", "cuMemGetInfo"})
    BOOST_TEST(calls(name) == 0, name);
  machine.set("FAKE_CUDA_INIT", "999");
  BOOST_TEST(probe().status == TH_E_UNAVAILABLE);
  machine.set("FAKE_CUDA_INIT", "0");
  BOOST_TEST(probe().status == TH_OK);  // a failure is not cached
}

BOOST_AUTO_TEST_CASE(create_passes_the_selected_device_to_the_engine) {
  Machine machine{{"FAKE_CUDA_DEVICES", "2"}};
  RunSpec r = small_run();
  r.device_budget = 123, r.host_budget = 456;
  auto create_with = [&](std::map<std::string, std::string> options) -> std::string {
    Host host(std::move(options));
    try {
      PluginSession s(front(), host, small_model(), r);
    } catch (const StatusFailure& f) {
      return f.what();
    }
    return "created";
  };
  BOOST_TEST(create_with({}) == "device 0, device budget 123, host budget 456, engine 13");
  BOOST_TEST(create_with({{"device", "1"}}) == "device 1, device budget 123, host budget 456, engine 13");
  machine.set("FAKE_CUDA_CC", "6.1");
  BOOST_TEST(create_with({}).find("compute capability 6.1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(profile_and_plan_need_no_driver_and_no_engine) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"},
                  {"TRAINHOST_CUDA_NVML", "libno-nvml.so"}};
  for (Plugin* plugin : {&front("no_toolkit"), &front_with("", "")}) {
    Host host;
    const th_profile p = plugin->profile(host, small_model(), small_run());
    BOOST_TEST(p.tier == TH_TIER_DEVICE);
    BOOST_TEST(std::string(p.trainer) == "cuda");
    BOOST_TEST(std::string(p.mode) == "resident");
    const MemoryReport r = plugin->plan(host, small_model(), small_run());
    BOOST_TEST(r.tier_bytes(Tier::kDevice) > 0u);
    BOOST_TEST((r.claim == Claim::kExact));
    BOOST_TEST(r.digest != 0u);
  }
}

BOOST_AUTO_TEST_CASE(unsupported_settings_are_rejected_by_name) {
  Host host;
  RunSpec lora = small_run();
  lora.mode = RunMode::kLora;
  RunSpec ranks = small_run();
  ranks.parallel.tensor = 2;
  for (const RunSpec& r : {lora, ranks})
    BOOST_CHECK_EXCEPTION(front().profile(host, small_model(), r), StatusFailure,
                          [](const StatusFailure& f) { return f.code == TH_E_UNSUPPORTED; });
}

BOOST_AUTO_TEST_SUITE_END()
