// Renders a LrRangeResult for `train --find-lr`.
#pragma once
#include <string>

#include "core/report/terminal.hpp"
#include "core/training/lr_range.hpp"

namespace trainhost::report {

/// A plot of loss against learning rate in characters, then the suggestion with the setting to paste.
std::string lr_range_plot(const training::LrRangeResult& v, const Terminal& t);
std::string lr_range_suggestion(const training::LrRangeResult& v);

/// The trainhost.lr_range/1 object.
std::string lr_range_json(const training::LrRangeResult& v);

/// The same plot as an SVG file that needs no other file, in light and dark.
std::string lr_range_svg(const training::LrRangeResult& v);

/// Losses between these are drawn at their height, others at the border: a diverged loss would flatten the
/// rest of the curve.
struct LossAxis {
  double low = 0, high = 1;
};
LossAxis loss_axis(const training::LrRangeResult& v);

}  // namespace trainhost::report
