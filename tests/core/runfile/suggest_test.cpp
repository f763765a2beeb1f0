// core/runfile/suggest: which devices, models, backends and matrices a user may mean.
#include "core/runfile/suggest.hpp"

#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using namespace trainhost::runfile;
using trainhost::test::TemporaryDirectory;
using Names = std::vector<std::string>;

BOOST_AUTO_TEST_SUITE(suggestions)

BOOST_AUTO_TEST_CASE(a_device_is_found_by_a_part_of_its_name) {
  const auto devices = [](const char* name) { return matching_devices(name); };
  BOOST_TEST(devices("4090") == Names{"rtx-4090"});
  BOOST_TEST(devices("RTX4090") == Names{"rtx-4090"});
  BOOST_TEST(devices("NVIDIA GeForce RTX 4090") == Names{"rtx-4090"});
  BOOST_TEST((devices("A100") == Names{"a100-40gb", "a100-80gb"}));
  BOOST_TEST(devices("A100-80GB") == Names{"a100-80gb"});
  BOOST_TEST(devices("NVIDIA A100-SXM4-40GB") == Names{"a100-40gb"});
  BOOST_TEST((devices("h100") == Names{"h100-80gb", "h100-pcie-80gb"}));
  BOOST_TEST(devices("NVIDIA H100 80GB HBM3") == Names{"h100-80gb"});
  BOOST_TEST(devices("NVIDIA H100 PCIe") == Names{"h100-pcie-80gb"});
  BOOST_TEST(devices("L4") == Names{"l4-24gb"});  // not the L40S
  BOOST_TEST(devices("MI300X") == Names{"mi300x-192gb"});
  BOOST_TEST(devices("b200") == Names{"b200-180gb"});
  BOOST_TEST((devices("v100") == Names{"v100-16gb", "v100-32gb"}));
  BOOST_TEST(devices("Tesla T4") == Names{"t4-16gb"});
  BOOST_TEST(devices("NVIDIA RTX 6000 Ada Generation") == Names{"rtx-6000-ada"});
  BOOST_TEST(devices("p100").empty());
  // Other cards of nearly the same name, most with other memory.
  for (const char* other : {"RTX 4050", "NVIDIA GeForce RTX 3050 Ti", "rtx-4090-laptop", "RTX 2060"})
    BOOST_TEST(devices(other).empty(), other);
  BOOST_TEST(devices("4070") == Names{"rtx-4070"});
  BOOST_TEST(devices("4070 Ti") == Names{"rtx-4070-ti"});
  BOOST_TEST(devices("NVIDIA GeForce RTX 3070") == Names{"rtx-3070"});
  BOOST_TEST(devices("RTX 4060") == Names{"rtx-4060"});  // not the Ti
  BOOST_TEST((devices("4060 Ti") == Names{"rtx-4060-ti-16gb", "rtx-4060-ti-8gb"}));
  BOOST_TEST(devices("").empty());
  BOOST_TEST(devices("-").empty());
  // Every device by its own names.
  for (const DevicePreset& d : device_presets()) {
    BOOST_TEST(matching_devices(d.name) == Names{d.name});
    const Names by_full_name =
        matching_devices(d.vendor + " " + d.full_name.substr(0, d.full_name.find(',')));
    BOOST_TEST(by_full_name == Names{d.name}, d.full_name);
  }
}

BOOST_AUTO_TEST_CASE(a_model_is_found_by_its_name_on_the_hub) {
  BOOST_TEST(matching_models("meta-llama/Meta-Llama-3-8B-Instruct") == Names{"llama-3-8b"});
  BOOST_TEST(matching_models("meta-llama/Llama-3.1-8B") == Names{"llama-3.1-8b"});
  BOOST_TEST(matching_models("llama3-8b") == Names{"llama-3-8b"});
  BOOST_TEST(matching_models("llama3").size() > 1u);
  BOOST_TEST(matching_models("no/such").empty());
  BOOST_TEST(suggest_model("Lama-3-8B") == "; did you mean 'llama-3-8b'?");
  BOOST_TEST(suggest_model("org/Some-Reward-Qwen3-8B") == "; did you mean 'qwen3-8b'?");
  BOOST_TEST(suggest_model("Qwen/Qwen3-VL-4B-Instruct") == "; did you mean 'qwen3-4b'?");
  BOOST_TEST(suggest_model("org/meta-llama-3-8b-hf") == "; did you mean 'llama-3-8b'?");
}

// Only to plan: its weights are not needed.
BOOST_AUTO_TEST_CASE(a_model_of_the_hub_is_planned_as_the_preset_with_its_tensors) {
  BOOST_TEST(planned_model("meta-llama/Meta-Llama-3-8B-Instruct") == "llama-3-8b");
  BOOST_TEST(planned_model("Qwen/Qwen2.5-7B-Instruct") == "qwen2.5-7b");
  BOOST_TEST(planned_model("google/gemma-2-9b-it") == "gemma-2-9b");
  BOOST_TEST(planned_model("Qwen/Qwen2.5-7B-Instruct-AWQ") == "qwen2.5-7b");  // as NF4
  BOOST_TEST(planned_model("gpt2") == "gpt2");
  for (const char* name : {"meta-llama/Llama-3", "llama3", "Qwen/Qwen2.5-7B-Instruct-GGUF", "no/such", ""})
    BOOST_TEST(planned_model(name) == name);
  const TemporaryDirectory tmp;
  const std::string folder = (tmp / "Qwen2.5-7B").string();
  BOOST_TEST(planned_model(folder) == "qwen2.5-7b");
  std::filesystem::create_directories(folder);
  BOOST_TEST(planned_model(folder) == folder);
}

BOOST_AUTO_TEST_CASE(one_meaning_is_accepted_on_the_command_line_only) {
  BOOST_TEST(canonical_name("memory.device", "4090") == "rtx-4090");
  BOOST_TEST(canonical_name("memory.device", "A100") == "A100");       // 40 or 80 GB
  BOOST_TEST(canonical_name("memory.device", "H100") == "h100-80gb");  // SXM and PCIe have the same memory
  BOOST_TEST(canonical_name("memory.device", "h100-pcie") == "h100-pcie-80gb");
  for (const char* name : {"gpu", "amd", "nvidia", "cpu"})
    BOOST_TEST(canonical_name("memory.device", name) == name);
  BOOST_TEST(canonical_name("model.preset", "Llama_3_8B") == "llama-3-8b");
  BOOST_TEST(canonical_name("model.preset", "llama") == "llama");
  BOOST_TEST(canonical_name("output.dir", "4090") == "4090");
  BOOST_TEST(canonical_name("memory.device", "rtx-4060-ti") == "rtx-4060-ti");  // 8 or 16 GB
  BOOST_TEST(canonical_name("memory.device", "4060") == "rtx-4060");            // not the Ti
  for (const auto& [name, framework] : {std::pair("fsdp", "fsdp2"),
                                        {"LLaMA-Factory", "llama-factory"},
                                        {"Megatron-LM", "megatron"},
                                        {"HF", "transformers"},
                                        {"trl", "trl"},
                                        {"zero3", "zero3"},
                                        {"pytorch", "pytorch"}})
    BOOST_TEST(canonical_name("plan.framework", name) == framework);
  // The weights of a model on the Hub could be meant.
  BOOST_TEST(canonical_name("model.preset", "meta-llama/Llama-3-8B") == "meta-llama/Llama-3-8B");
  for (const std::string& preset : preset_names())
    BOOST_TEST(canonical_name("model.preset", preset) == preset);
  const RunConfig c =
      parse_run("", "run.toml", ".", {{"memory.device", "4090"}, {"model.preset", "LLaMA3-8B"}});
  BOOST_TEST(c.device == "rtx-4090");
  BOOST_TEST(c.model.name == "llama-3-8b");
  BOOST_TEST(run_for_model("Llama3-8B").model.name == "llama-3-8b");
  BOOST_CHECK_THROW(parse_run("[memory]\ndevice = \"4090\"\n", "run.toml", "."), Error);
}

BOOST_AUTO_TEST_CASE(several_meanings_are_listed) {
  BOOST_TEST(suggest_device("A100") == "; did you mean 'a100-40gb' or 'a100-80gb'?");
  BOOST_TEST(suggest_device("rtx") ==
             "; did you mean 'rtx-2070', 'rtx-2070-super', 'rtx-2080' or 'rtx-2080-super'?");
  BOOST_TEST(suggest_device("h100-80g") == "; did you mean 'h100-80gb'?");
  BOOST_TEST(suggest_device("GPU").find("--backend=cuda") != std::string::npos);
  BOOST_TEST(suggest_device("abacus") == "");
  BOOST_TEST(suggest_device("8xH200") == "; did you mean 'h200-141gb' and parallel.data = 8 for 8 of them?");
  BOOST_TEST(suggest_device("4 x l4") == "; did you mean 'l4-24gb' and parallel.data = 4 for 4 of them?");
  BOOST_TEST(suggest_device("8x") == "");
  BOOST_TEST(suggest_device("3090 ti").find("parallel.data") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_framework_is_known_by_what_its_users_call_it) {
  const Names known{"axolotl", "deepspeed", "megatron", "pytorch", "transformers"};
  BOOST_TEST(suggest_framework("TRL", known) == "; did you mean 'transformers'?");
  BOOST_TEST(suggest_framework("zero3", known) == "; did you mean 'deepspeed' with parallel.zero = 3?");
  BOOST_TEST(suggest_framework("zero", known) == "; did you mean 'deepspeed'?");
  BOOST_TEST(suggest_framework("axolot", known) == "; did you mean 'axolotl'?");
  BOOST_TEST(suggest_framework("jax", known) == "");
}

BOOST_AUTO_TEST_CASE(a_gpu_is_the_cuda_backend) {
  const Names known{"auto", "cpu", "cuda"};
  for (const char* name : {"gpu", "nvidia", "GPU", "cuda12", "cuda:0", "CUDA", "nvidia-gpu", "cuta"})
    BOOST_TEST(suggest_backend(name, known) == "; did you mean 'cuda'?", name);
  BOOST_TEST(suggest_backend("host", known) == "; did you mean 'cpu'?");
  BOOST_TEST(suggest_backend("hip", known) == "");  // not cpu
}

BOOST_AUTO_TEST_SUITE_END()
