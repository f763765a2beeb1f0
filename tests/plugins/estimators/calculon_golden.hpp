// Calculon's own 18 validation runs with the results of its memory model. float16; no offload, no
// sharded optimizer. Columns: name | hidden, feedforward, seq_size, attn_heads, attn_size, num_blocks | the
// fields of Execution in their order | weight_space, act_space, act_checkpoint_size, act_grad_space,
// weight_grad_space, optimizer_space, tier 1, tier 2 in bytes.
#pragma once
#include "tests/plugins/estimators/calculon_case.hpp"

namespace trainhost::calculon {

inline constexpr Case kGolden[] = {
    // clang-format off
    {"fig1/megatron-22B_none", {6144, 24576, 2048, 64, 96, 48},
     {8, 1, 1, 4, 1, 1, 2, 0, 0, Activation::kNone, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {5438177280, 63820529664, 0, 1728053248, 5551472640, 32629063680, 109167296512, 0}},
    {"fig7/megatron-22B_none", {6144, 24576, 2048, 64, 96, 48},
     {8, 1, 1, 4, 1, 1, 2, 0, 0, Activation::kNone, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {5438177280, 63820529664, 0, 1728053248, 5551472640, 32629063680, 109167296512, 0}},
    {"fig7/megatron-22B_sel", {6144, 24576, 2048, 64, 96, 48},
     {8, 1, 1, 4, 1, 1, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {5438177280, 27548188672, 0, 1728053248, 5551472640, 32629063680, 72894955520, 0}},
    {"fig7/megatron-22B_full", {6144, 24576, 2048, 64, 96, 48},
     {8, 1, 1, 4, 1, 1, 2, 0, 0, Activation::kFull, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {5438177280, 1526726656, 4831838208, 1728053248, 5551472640, 32629063680, 51705331712, 0}},
    {"tab5/megatron-22B_seqsel", {6144, 24576, 2048, 64, 96, 48},
     {8, 1, 1, 4, 1, 1, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {5438177280, 11165237248, 0, 1136656384, 5551472640, 32629063680, 55920607232, 0}},
    {"fig1/gpt3-175B_seqsel", {12288, 49152, 2048, 96, 128, 96},
     {8, 8, 1, 1, 64, 3, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {5436997632, 13627293696, 0, 484442112, 5890080768, 32621985792, 58060800000, 0}},
    {"fig7/gpt3-175B_seq", {12288, 49152, 2048, 96, 128, 96},
     {8, 8, 1, 1, 64, 3, 2, 0, 0, Activation::kNone, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {5436997632, 44581257216, 0, 484442112, 5890080768, 32621985792, 89014763520, 0}},
    {"fig7/gpt3-175B_seqsel", {12288, 49152, 2048, 96, 128, 96},
     {8, 8, 1, 1, 64, 3, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {5436997632, 13627293696, 0, 484442112, 5890080768, 32621985792, 58060800000, 0}},
    {"tab5/gpt3-175B_full", {12288, 49152, 2048, 96, 128, 96},
     {8, 8, 1, 1, 64, 3, 2, 0, 0, Activation::kFull, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {5436997632, 679477248, 6241124352, 780140544, 5890080768, 32621985792, 51649806336, 0}},
    {"fig1/turing-530B_none", {20480, 81920, 2048, 128, 160, 105},
     {8, 35, 1, 1, 280, 3, 2, 0, 0, Activation::kNone, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {3775365120, 122599505920, 0, 1216348160, 5033820160, 22652190720, 155277230080, 0}},
    {"fig7/turing-530B_none", {20480, 81920, 2048, 128, 160, 105},
     {8, 35, 1, 1, 280, 3, 2, 0, 0, Activation::kNone, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {3775365120, 122599505920, 0, 1216348160, 5033820160, 22652190720, 155277230080, 0}},
    {"fig7/turing-530B_sel", {20480, 81920, 2048, 128, 160, 105},
     {8, 35, 1, 1, 280, 3, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {3775365120, 64718110720, 0, 1216348160, 5033820160, 22652190720, 97395834880, 0}},
    {"fig7/turing-530B_full", {20480, 81920, 2048, 128, 160, 105},
     {8, 35, 1, 1, 280, 3, 2, 0, 0, Activation::kFull, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {3775365120, 1048576000, 11660165119.999998, 1216348160, 5033820160, 22652190720, 45386465280, 0}},
    {"tab5/turing-530B_seqsel", {20480, 81920, 2048, 128, 160, 105},
     {8, 35, 1, 1, 280, 3, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {3775365120, 25302138880, 0, 723517440, 5033820160, 22652190720, 57487032320, 0}},
    {"fig1/megatron-1T_seqsel", {25600, 102400, 2048, 160, 160, 128},
     {8, 64, 1, 1, 512, 1, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {3932569600, 29176627200, 0, 904396800, 5898854400, 23595417600, 63507865600, 0}},
    {"fig7/megatron-1T_seq", {25600, 102400, 2048, 160, 160, 128},
     {8, 64, 1, 1, 512, 1, 2, 0, 0, Activation::kNone, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {3932569600, 82444288000, 0, 904396800, 5898854400, 23595417600, 116775526400, 0}},
    {"fig7/megatron-1T_seqsel", {25600, 102400, 2048, 160, 160, 128},
     {8, 64, 1, 1, 512, 1, 2, 0, 0, Activation::kAttnOnly, 0, Comm::kRsAg, Overlap::kNone, 1, 0, 0, 0, 1},
     {3932569600, 29176627200, 0, 904396800, 5898854400, 23595417600, 63507865600, 0}},
    {"tab5/megatron-1T_full", {25600, 102400, 2048, 160, 160, 128},
     {8, 64, 1, 1, 512, 1, 2, 0, 0, Activation::kFull, 0, Comm::kAr, Overlap::kNone, 0, 0, 0, 0, 1},
     {3932569600, 1310720000, 13421772800, 1520435200, 5898854400, 23595417600, 49679769600, 0}},
    // clang-format on
};

}  // namespace trainhost::calculon
