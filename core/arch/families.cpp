// The table of families: a model_type and the function that reads its config.json. A new family is a line here, a reader in
// the file of its kin, and its published total in tests/core/arch/totals_test.cpp.
#include "core/arch/readers.hpp"

namespace trainhost::arch {
namespace {

constexpr Family kFamilies[] = {
    {"baichuan", read_baichuan},
    {"granite", read_granite},
    {"internlm2", read_internlm2},
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"olmo", read_olmo},
    {"olmo2", read_olmo2},
    {"phi3", read_phi3},
    {"qwen2", read_qwen2},
    {"qwen3", read_qwen3},
    {"stablelm", read_stablelm},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace trainhost::arch
