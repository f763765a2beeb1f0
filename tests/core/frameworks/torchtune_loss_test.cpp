// The losses of torchtune for fewer tokens than they have chunks.
#include <boost/test/unit_test.hpp>

#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/training_step.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;

BOOST_AUTO_TEST_CASE(losses_of_fewer_tokens_than_chunks) {
  model::Architecture a;
  a.family = "llama", a.vocab = 1024, a.hidden = 64;
  model::Layer l;
  l.attention.heads = 4, l.attention.kv_heads = 2, l.attention.head_dim = 16, l.mlp.width = 192;
  a.layers = {{l, 2}};
  StepSettings s;
  s.modules = ModelSource::kTorchtune, s.weights = Element::kBF16;
  for (const LossKind loss : {LossKind::kPlain, LossKind::kChunkedLogits, LossKind::kChunkedHead})
    for (const std::uint32_t batch : {1u, 2u}) {
      std::uint64_t before = 0;
      for (std::uint32_t sequence = 1; sequence <= 20; ++sequence) {
        s.loss = loss, s.batch = batch, s.sequence = sequence;
        const std::uint64_t peak = find_peak(training_step(a, s).trace).bytes;
        BOOST_TEST(peak >= before, "loss " << int(loss) << ", " << batch << " x " << sequence << " tokens");
        BOOST_TEST(peak < (4u << 20));
        before = peak;
      }
    }
}
