#include "core/planning/dataset_options.hpp"

namespace trainhost::planning {

data::OpenOptions open_options(const runfile::RunConfig& c) {
  data::OpenOptions o;
  o.train = c.data.train;
  o.valid = c.data.valid;
  o.valid_fraction = c.data.valid_fraction;
  o.tokenizer = c.data.tokenizer;
  o.dtype = c.data.dtype;
  o.vocab = c.model.vocab;
  o.seed = c.run.seed;
  o.seq_len = c.run.seq_len;
  o.cache_dir = c.output.cache;
  o.any_text = c.data.tokenizer == "bytes" && c.given.count("data.tokenizer") > 0;
  return o;
}

void adopt_vocabulary(runfile::RunConfig& c) {
  if (c.model_is_builtin && c.data.tokenizer != "bytes")
    c.model.vocab = data::make_tokenizer(c.data.tokenizer)->vocab();
}

}  // namespace trainhost::planning
