// Parses and checks `mode`, `device` and `attention`, and checks `products`; values only, whether or not a
// device exists. What a mode means: core/step/device_modes.hpp. See cuda_options.hpp.
#include "plugins/cuda/front_end/cuda_options.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/common/attention_choice.hpp"

namespace trainhost::cuda {
namespace {

const char* text_of(const th_host* host, const char* key) {
  return host && host->option ? host->option(host, key) : nullptr;
}

[[noreturn]] void reject(const std::string& what, const std::string& hint) {
  throw abi::StatusError(TH_E_ARG, what, hint);
}

}  // namespace

Options options_of(const th_host* host) {
  static const std::vector<std::string> kModes = {"auto", "resident", "hybrid", "streamed"};
  Options o;
  if (const char* mode = text_of(host, "mode")) {
    if (std::find(kModes.begin(), kModes.end(), mode) == kModes.end())
      reject("plugin.cuda.mode = \"" + escaped(mode, 60) + "\": unknown mode" + did_you_mean(mode, kModes),
             "use auto, resident, hybrid or streamed");
    o.mode = mode;
  }
  if (const char* device = text_of(host, "device")) {
    const char* end = device + std::strlen(device);
    const auto [rest, failed] = std::from_chars(device, end, o.device);
    if (failed != std::errc{} || rest != end || o.device < 0)
      reject(
          "plugin.cuda.device = " + escaped(device, 60) + ": expected a device index, 0 for the first device",
          "nvidia-smi -L lists the devices");
  }
  // A relative path would mean another file in every working directory.
  if (const char* products = text_of(host, "products"); products && *products && *products != '/')
    reject("plugin.cuda.products = \"" + escaped(products, 60) + "\": expected an absolute path",
           "write the path of a file from the root on, or \"\" for no file");
  if (const char* attention = text_of(host, "attention")) {
    require_known_attention(attention);
    o.attention = attention;
  }
  return o;
}

}  // namespace trainhost::cuda
