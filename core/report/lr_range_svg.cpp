// The plot of `train --find-lr` as an SVG file. A browser shows it alone, so it has its own style.
#include <algorithm>
#include <cmath>

#include "core/report/html_svg.hpp"
#include "core/report/lr_range_report.hpp"

namespace trainhost::report {
namespace {

using namespace html;

constexpr double kTop = 40, kFloor = 380, kLeft = 70, kRight = 24, kHeight = 430;

// The colours of html_style.cpp.
constexpr const char* kStyle =
    "<style>svg{background:#ffffff;font:12px system-ui,sans-serif}text{fill:#15181e}.dim{fill:#5a6270}"
    ".grid{stroke:#d9dde3;fill:none}.loss{fill:#66707e}.smooth{stroke:#2563c9;stroke-width:2.5;fill:none}"
    ".pick{stroke:#12703a;stroke-width:2;stroke-dasharray:5 4;fill:none}"
    "@media(prefers-color-scheme:dark){svg{background:#14171c}text{fill:#e9ecf1}.dim{fill:#a3acb9}"
    ".grid{stroke:#323844}.loss{fill:#9aa3af}.smooth{stroke:#6ea5ff}.pick{stroke:#62d394}}</style>\n";

}  // namespace

std::string lr_range_svg(const training::LrRangeResult& v) {
  const LossAxis axis = loss_axis(v);
  const Scale x{v.range.from, v.range.to, kLeft, kWidth - kRight, true};
  const Scale y{axis.low, axis.high, kFloor, kTop};
  const auto height = [&](double loss) { return y(std::clamp(loss, axis.low, axis.high)); };
  std::string out = fmt::format(
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\n"
                        "<title>Loss against learning rate</title>\n",
                        px(kWidth), px(kHeight)) +
                    kStyle;
  for (int i = 0; i <= 5; ++i) {
    const double loss = axis.low + (axis.high - axis.low) * i / 5;
    out += line(kLeft, y(loss), kWidth - kRight, y(loss), "grid") +
           label(kLeft - 8, y(loss) + 4, fmt::format("{:.4g}", loss), "end", "dim");
  }
  const int first = static_cast<int>(std::ceil(std::log10(v.range.from) - 1e-9)),
            last = static_cast<int>(std::floor(std::log10(v.range.to) + 1e-9));
  for (int e = first; e <= last; ++e) {
    const double at = x(std::pow(10.0, e));
    out +=
        line(at, kTop, at, kFloor, "grid") + label(at, kFloor + 18, fmt::format("1e{}", e), "middle", "dim");
  }
  out += label((kLeft + kWidth - kRight) / 2, kHeight - 10, "learning rate", "middle") +
         label(4, kTop - 22, "loss (nats per token)", "start");
  std::string curve;
  for (std::size_t i = 0; i < v.points.size(); ++i) {
    const training::LrPoint& p = v.points[i];
    out += fmt::format("<circle class=\"loss\" cx=\"{}\" cy=\"{}\" r=\"2.5\">{}</circle>\n", px(x(p.lr)),
                       px(height(p.loss)), tip(fmt::format("{:.3g}: {:.4f}", p.lr, p.loss)));
    curve += fmt::format("{}{} {}", i ? "L" : "M", px(x(p.lr)), px(height(v.suggestion.smoothed[i])));
  }
  if (!curve.empty()) out += "<path class=\"smooth\" d=\"" + curve + "\"/>\n";
  if (v.suggestion.lr) {
    const double at = x(*v.suggestion.lr);
    out += line(at, kTop - 8, at, kFloor, "pick") +
           label(at, kTop - 14, fmt::format("{:g}", *v.suggestion.lr), "middle");
  }
  return out + "</svg>\n";
}

}  // namespace trainhost::report
