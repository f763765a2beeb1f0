// Which engine the front end uses: that of CUDA 13 or that of CUDA 12, by the version of the driver and by
// the libraries that are found; and the message when it can use neither.
#include "tests/plugins/cuda/front_end/front_end_fixture.hpp"

using namespace trainhost;
using namespace trainhost::test;
using namespace trainhost::test::front_end;

namespace {

const std::string kLibrary = ": cannot open shared object file: No such file or directory";

/// The engine that probe() names in its log line.
std::string engine_of(const Answer& a) {
  BOOST_TEST(a.status == TH_OK, a.message);
  const std::string line = a.lines.empty() ? "" : a.lines.back();
  const std::size_t at = line.find("engine ");
  if (at == line.npos) return line;
  const std::size_t end = line.find("; ", at);  // then what it says of NCCL
  return line.substr(at + 7, end == line.npos ? end : end - at - 7);
}

/// The end of the message of create(): "engine 13".
std::string engine_that_creates(const Plugin& plugin) {
  Host host;
  try {
    PluginSession s(plugin, host, small_model(), small_run());
  } catch (const StatusFailure& f) {
    const std::string text = f.what();
    return text.substr(text.rfind(", ") + 2);
  }
  return "created";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_engine_choice)

BOOST_AUTO_TEST_CASE(the_driver_decides_when_both_engines_can_be_loaded) {
  Machine machine{{"FAKE_CUDA_VERSION", "13000"}};
  Plugin& both = front_with("good-13", "good-12");
  BOOST_TEST(engine_of(probe(both)) == "cuda-cublas-13.so");
  machine.set("FAKE_CUDA_VERSION", "12000");
  BOOST_TEST(engine_of(probe(both)) ==
             "cuda-cublas-12.so (CUDA 13: the NVIDIA driver supports CUDA 12.0, 13.0 is needed)");
  machine.set("FAKE_CUDA_VERSION", "13010");
  BOOST_TEST(engine_of(probe(both)) == "cuda-cublas-13.so");
}

BOOST_AUTO_TEST_CASE(a_new_driver_runs_the_engine_whose_cublas_is_found) {
  Machine machine{{"FAKE_CUDA_VERSION", "13000"}};
  BOOST_TEST(engine_of(probe(front_with("no-blas-13", "good-12"))) ==
             "cuda-cublas-12.so (CUDA 13: libcublasLt-absent-13.so" + kLibrary + ")");
  BOOST_TEST(engine_of(probe(front_with("good-13", "no-blas-12"))) == "cuda-cublas-13.so");
  BOOST_TEST(engine_of(probe(front_with("", "good-12"))) ==
             "cuda-cublas-12.so (CUDA 13: engines/cuda-cublas-13.so is missing)");
  BOOST_TEST(engine_of(probe(front_with("good-13", ""))) == "cuda-cublas-13.so");
}

BOOST_AUTO_TEST_CASE(an_old_driver_without_the_engine_for_it_gets_both_remedies) {
  Machine machine{{"FAKE_CUDA_VERSION", "12040"}};
  check_unavailable(
      probe(front_with("good-13", "")),
      "no CUDA engine can be used: CUDA 13: the NVIDIA driver supports CUDA 12.4, 13.0 is needed; "
      "CUDA 12: engines/cuda-cublas-12.so is missing",
      "update the NVIDIA driver to R580 or newer; or install the engine for CUDA 12 ('tools/dev "
      "cuda12' builds it)");
}

BOOST_AUTO_TEST_CASE(missing_libraries_are_named_with_the_package_to_install) {
  Machine machine{{"FAKE_CUDA_VERSION", "12040"}};
  check_unavailable(
      probe(front_with("good-13", "no-blas-12")),
      "no CUDA engine can be used: CUDA 13: the NVIDIA driver supports CUDA 12.4, 13.0 is needed; "
      "CUDA 12: libcublasLt-absent-12.so" +
          kLibrary,
      "install cuBLAS of CUDA 12 (of the CUDA toolkit, or pip's nvidia-cublas-cu12)");
  machine.set("FAKE_CUDA_VERSION", "13000");
  check_unavailable(probe(front_with("no-blas-13", "no-blas-12")),
                    "no CUDA engine can be used: CUDA 13: libcublasLt-absent-13.so" + kLibrary +
                        "; CUDA 12: libcublasLt-absent-12.so" + kLibrary,
                    "install cuBLAS of CUDA 13 (of the CUDA toolkit, or pip's nvidia-cublas)");
  check_unavailable(probe(front_with("no-blas-13", "")),
                    "no CUDA engine can be used: CUDA 13: libcublasLt-absent-13.so" + kLibrary +
                        "; CUDA 12: engines/cuda-cublas-12.so is missing",
                    "install cuBLAS of CUDA 13");
}

BOOST_AUTO_TEST_CASE(an_engine_of_another_build_is_not_used) {
  Machine machine;
  const Answer a = probe(front_with("other-build-13", ""));
  BOOST_TEST(a.status == TH_E_UNAVAILABLE);
  BOOST_TEST(has(a.message, "cuda-cublas-13.so does not belong to this build of the plugin"), a.message);
  BOOST_TEST(has(a.hint, "reinstall both"), a.hint);
  BOOST_TEST(
      engine_of(probe(front_with("other-build-13", "good-12"))).starts_with("cuda-cublas-12.so (CUDA 13: "));
}

BOOST_AUTO_TEST_CASE(without_any_engine_file_the_driver_is_not_asked) {
  Machine machine{{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}};
  const Answer a = probe(front_with("", ""));
  BOOST_TEST(a.status == TH_E_UNAVAILABLE);
  BOOST_TEST(has(a.message, "engines/cuda-cublas-13.so is missing, and so is cuda-cublas-12.so"), a.message);
  BOOST_TEST(has(a.hint, "reinstall"), a.hint);
}

BOOST_AUTO_TEST_CASE(all_instances_of_a_process_have_the_same_engine) {
  Machine machine{{"FAKE_CUDA_VERSION", "12040"}};
  Plugin& both = front_with("good-13", "good-12");
  BOOST_TEST(engine_that_creates(both) == "engine 12");
  machine.set("FAKE_CUDA_VERSION", "13000");
  BOOST_TEST(engine_of(probe(both)) == "cuda-cublas-13.so");
  BOOST_TEST(engine_that_creates(both) == "engine 12");
  BOOST_TEST(engine_that_creates(front_with("good-13", "good-12")) == "engine 13");
}

BOOST_AUTO_TEST_SUITE_END()
