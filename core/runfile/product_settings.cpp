// Rules for plan.fp8_recipe and the keys that need it: what Transformer Engine 2.11 and Megatron Core refuse,
// whatever the model. Rules that need the model: plugins/estimators/pytorch/settings_megatron_products.cpp.
#include <fmt/format.h>

#include "core/model/presets.hpp"
#include "core/runfile/planned_settings.hpp"

namespace trainhost::runfile {
namespace {

/// Compute capability, times 10, from which on a recipe runs, and that from which on it does not; 0: none.
struct RecipeDevices {
  const char* recipe;
  std::uint32_t first, end;
  const char* devices;
};
constexpr RecipeDevices kRecipeDevices[] = {
    {"delayed", 89, 0, "compute capability 8.9 or higher (L4, RTX 4090, H100 or newer)"},
    {"tensorwise", 89, 0, "compute capability 8.9 or higher (L4, RTX 4090, H100 or newer)"},
    {"blockwise", 90, 0, "compute capability 9.0 or higher (H100 or newer)"},
    {"mxfp8", 100, 120, "compute capability 10.x (B200, GB200)"},
    {"nvfp4", 100, 0, "compute capability 10.0 or higher (B200 or newer)"},
};

void require_device_of_recipe(const Settings& s, const std::string& recipe, const DevicePreset& device) {
  for (const RecipeDevices& r : kRecipeDevices)
    if (recipe == r.recipe && (device.capability < r.first || (r.end && device.capability >= r.end)))
      throw usage_error(fmt::format("plan.fp8_recipe = \"{}\" on {}: Transformer Engine has it for {}",
                                    recipe, device.name, r.devices),
                        recipe == "mxfp8" && device.capability >= 89
                            ? "set plan.fp8_recipe to \"tensorwise\", or memory.device to another device"
                            : "leave it out, or set memory.device to another device",
                        s.where("plan.fp8_recipe"));
}

}  // namespace

void require_possible_products(const Settings& s, const RunConfig& c) {
  const auto refuse = [&](const char* key, const std::string& what, const char* hint) {
    s.rule([&] {
      for (const char* read : {key, "plan.fp8_recipe", "parallel.zero"}) s.depends_on(read);
      throw usage_error(what, hint, s.where(key));
    });
  };
  const bool given = s.given("plan.fp8_recipe");
  for (const char* key :
       {"plan.fp8_weights", "plan.amax_history", "plan.bf16_first_layers", "plan.bf16_last_layers"})
    if (s.given(key) && !given)
      refuse(key, fmt::format("{} is a setting of products in 8 bits, but plan.fp8_recipe is not given", key),
             "example: plan.fp8_recipe = \"tensorwise\"");
  if (!given) return;
  const std::string recipe = s.text("plan.fp8_recipe");
  if (const DevicePreset* device = find_device_preset(c.device))
    s.rule([&] { require_device_of_recipe(s, recipe, *device); });
  const bool weights = s.given("plan.fp8_weights") && s.flag("plan.fp8_weights");
  if (weights && recipe == "nvfp4")
    refuse("plan.fp8_weights",
           "plan.fp8_weights with plan.fp8_recipe = \"nvfp4\": weights in 4 bits are not described",
           "leave plan.fp8_weights out");
  if (weights && c.run.parallel.zero == 0)
    refuse(
        "plan.fp8_weights",
        "plan.fp8_weights without the distributed optimizer: Megatron-LM refuses --fp8-param-gather without "
        "--use-distributed-optimizer",
        "set parallel.zero = 1");
  if (s.given("plan.amax_history") && recipe != "delayed")
    refuse("plan.amax_history",
           fmt::format("plan.amax_history with plan.fp8_recipe = \"{}\": only delayed scaling has a history",
                       recipe),
           "leave it out");
  for (const char* key : {"plan.bf16_first_layers", "plan.bf16_last_layers"})
    if (s.given(key) && s.integer(key) > 0 && recipe == "delayed")
      refuse(key,
             fmt::format("{} with plan.fp8_recipe = \"delayed\": Megatron Core has no layers in bf16 with it",
                         key),
             "set plan.fp8_recipe to \"tensorwise\", or leave it out");
}

}  // namespace trainhost::runfile
