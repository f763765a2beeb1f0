// See html_style.hpp. The style sheet is a constant of the program; nothing from outside is inserted into it.
#include "core/report/html_style.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace trainhost::report::html {
namespace {

// k0 to k11 are the components in the order of their enumerators: weights, master weights, gradients,
// optimizer state, activations, logits, workspace, communication, key/value cache, adapters, fragmentation,
// runtime.
constexpr const char* kLight =
    "--bg:#ffffff;--ink:#15181e;--dim:#5a6270;--line:#d9dde3;--soft:#f4f6f8;--good:#12703a;--bad:#b3261e;--"
    "mark:#15181e;"
    "--k0:#2563c9;--k1:#17377a;--k2:#7443bd;--k3:#b45309;--k4:#1b7f45;--k5:#0b7285;"
    "--k6:#7a6242;--k7:#b3276f;--k8:#b3261e;--k9:#68690a;--k10:#66707e;--k11:#3f4754;";
// The dark palette has the same hues at a higher lightness: contrast is computed against --bg.
constexpr const char* kDark =
    "--bg:#14171c;--ink:#e9ecf1;--dim:#a3acb9;--line:#323844;--soft:#1c2027;--good:#62d394;--bad:#ff8f86;--"
    "mark:#ffffff;"
    "--k0:#6ea5ff;--k1:#a9c4f5;--k2:#b99af5;--k3:#f5a054;--k4:#5fcb8b;--k5:#4cc7d8;"
    "--k6:#c9b28d;--k7:#f583b5;--k8:#ff8a80;--k9:#d2ce5a;--k10:#9aa3af;--k11:#808a99;";

// Classes that the drawing code relies on:
// - part, curve, dot: marks that the legend can fade; their colour is --c of the class kN beside them.
// - hit: has a tooltip. on: text on a coloured part. halo: text that must stay readable above other marks.
// - under, limit, cross, grid, span: lines. good, bad: the colours of fits and does not fit.
// - b on a data element: a size that the button switches between rounded and exact.
// Printing drops the script's elements, opens all details and always uses the light palette.
constexpr const char* kRules = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1040px;margin:0 auto;padding:28px 20px 40px}
h1{font-size:26px;line-height:1.2;margin:0;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:17px;line-height:1.3;margin:0 0 10px;font-weight:650}
h3{font-size:14px;margin:18px 0 6px;font-weight:650}
p{margin:6px 0}
header{position:relative}
section{margin-top:34px;padding-top:18px;border-top:1px solid var(--line)}
.brand{color:var(--dim);font-size:12px;letter-spacing:.06em;text-transform:uppercase;margin:0 0 4px}
.sub,figcaption,.more,footer,caption{color:var(--dim)}
.sub{overflow-wrap:anywhere}
.answer{font-size:21px;line-height:1.35;font-weight:600;margin:16px 0 4px;padding:10px 14px;border-left:5px solid var(--dim);background:var(--soft);border-radius:0 6px 6px 0;overflow-wrap:anywhere}
.answer.good{border-color:var(--good);color:var(--good)}
.answer.bad{border-color:var(--bad);color:var(--bad)}
figure{margin:0 0 14px}
figcaption{font-size:13px;margin-top:4px}
.scroll{overflow-x:auto}
.scroll+.scroll,.scroll+.tools{margin-top:20px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px 26px}
.charts figcaption{font-weight:600;color:var(--ink);margin:0;padding-right:150px}
.charts figure{min-width:0;margin:0;position:relative}
.charts .tools{position:absolute;top:0;right:0}
.plot{min-height:190px}
.controls{display:none;gap:6px 22px;flex-wrap:wrap;margin:0 0 12px;font-size:13px}
.controls label{display:flex;gap:8px;align-items:center}
.js .controls{display:flex}
.tools{display:flex;gap:6px;justify-content:flex-end;margin:0 0 4px}
.tools button{font-size:12px;padding:1px 8px;color:var(--dim)}
.log{max-height:320px;overflow:auto;white-space:pre;overflow-wrap:normal}
:focus-visible{outline:2px solid var(--k0);outline-offset:2px}
.nb{white-space:nowrap}
.scroll svg.narrow{display:none}
svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;font-variant-numeric:tabular-nums}
svg text{fill:var(--ink)}
svg .dim{fill:var(--dim)}
svg .on{fill:var(--bg);pointer-events:none}
svg .strong{font-weight:650}
svg .bad{fill:var(--bad)}
svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .span{stroke:var(--dim);stroke-width:2;fill:none}
svg .named{fill:var(--c)}
svg .limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 4;fill:none}
svg .under{stroke:var(--bg);stroke-width:4;opacity:.75;fill:none}
svg .cross{stroke:var(--dim);stroke-width:1;stroke-dasharray:2 3;fill:none}
svg .peak{stroke:var(--mark);stroke-width:1.5;fill:var(--bg)}
svg .part{stroke:var(--bg);stroke-width:1}
svg .curve{fill:none;stroke:var(--c);stroke-width:2.25;stroke-linejoin:round}
svg .range{fill:var(--c);fill-opacity:.16;stroke:none}
svg .front{fill:none;stroke:var(--k3);stroke-width:2}
svg .dot{fill:var(--c);stroke:var(--bg);stroke-width:1}
svg .halo{paint-order:stroke;stroke:var(--bg);stroke-width:4px;stroke-linejoin:round}
svg .area{fill:transparent}
svg .area:hover{fill:var(--ink);fill-opacity:.1}
svg .faded{opacity:.18}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:0 0 8px;padding:0;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;background:var(--c);margin-right:6px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-size:13px;padding:0 0 6px}
th{font-weight:600;color:var(--dim);text-align:left;border-bottom:1px solid var(--line);vertical-align:bottom}
th,td{padding:5px 14px 5px 0}
th:last-child,td:last-child{padding-right:2px}
td{border-bottom:1px solid var(--line);vertical-align:top}
table[data-sort] td:nth-child(2){min-width:200px}
.r{text-align:right;white-space:nowrap}
table[data-tier]{table-layout:fixed;max-width:820px;min-width:580px}
tr.sum td{font-weight:650;border-bottom:0}
tr.off td{color:var(--dim)}
td i{display:inline-block;width:10px;height:10px;border-radius:2px;background:var(--c);margin-right:8px}
td code{overflow-wrap:anywhere}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{background:var(--soft);padding:10px 12px;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0;color:var(--ink)}
.good{color:var(--good)}
.bad{color:var(--bad)}
ul{margin:6px 0;padding-left:20px}
details{margin:12px 0}
summary{cursor:pointer;font-weight:600;padding:4px 0}
footer{margin-top:36px;padding-top:14px;border-top:1px solid var(--line);font-size:13px}
button{font:inherit;font-size:13px;color:var(--ink);background:var(--bg);border:1px solid var(--line);border-radius:6px;padding:3px 11px;cursor:pointer}
button[aria-pressed=true]{background:var(--soft);border-color:var(--dim)}
#exact{display:none;position:absolute;top:0;right:0}
.js #exact{display:inline-block}
.js th.sort{cursor:pointer}
th[aria-sort=ascending]::after{content:" \2191"}
th[aria-sort=descending]::after{content:" \2193"}
#tip{position:fixed;z-index:9;max-width:420px;padding:7px 11px;background:var(--ink);color:var(--bg);border-radius:6px;font-size:13px;line-height:1.45;white-space:pre-line;pointer-events:none;font-variant-numeric:tabular-nums}
#tip[hidden]{display:none}
@media(max-width:640px){main{padding:18px 14px}h1{font-size:22px}.answer{font-size:18px}.js #exact{position:static;margin:8px 0 0}td{min-width:5em}}
@media(max-width:560px){
.scroll svg.wide{display:none}
.scroll svg.narrow{display:block}
.js table,.js tbody,.js tr,.js td,.js caption{display:block;min-width:0;max-width:none}
.js thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.js tbody tr{border-bottom:1px solid var(--line);padding:5px 0}
.js tbody td{display:flex;justify-content:space-between;gap:14px;border:0;padding:2px 0;text-align:right;white-space:normal;overflow-wrap:anywhere}
.js tbody td:empty{display:none}
.js td::before{content:attr(data-h);color:var(--dim);text-align:left;flex:none;max-width:50%}
.js td:first-child{font-weight:600}
.js td>i:first-child{margin-left:auto;margin-right:-6px;align-self:center}
}
@media print{
body{font-size:10.5pt}
main{max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
section{margin-top:18px;padding-top:10px}
figure,tr,.answer{break-inside:avoid}
h2,h3,summary{break-after:avoid}
.scroll{overflow:visible}
.js #exact,.tools,.js .controls,#tip{display:none}
.log{max-height:none;white-space:pre-wrap}
table{font-size:8.5pt}
th,td{padding:3px 8px 3px 0}
code,pre{font-size:8pt}
})css";

}  // namespace

/// The palettes are custom properties, so that dark mode and printing redefine colours in one place each.
std::string style() {
  std::string out = fmt::format(
      ":root{{{}color-scheme:light dark}}\n@media(prefers-color-scheme:dark){{:root{{{}}}}}\n@media "
      "print{{:root{{{}}}}}\n",
      kLight, kDark, kLight);
  for (std::size_t i = 0; i < kColours; ++i)
    out += fmt::format(".k{0}{{--c:var(--k{0})}}svg .k{0}.part{{fill:var(--k{0})}}\n", i);
  return out + kRules;
}

namespace {

/// "var(--NAME)" replaced by the colour of the palette.
std::string resolved(std::string rule, std::string_view palette) {
  for (std::size_t at; (at = rule.find("var(--")) != std::string::npos;) {
    const std::size_t end = rule.find(')', at);
    const std::string name = rule.substr(at + 4, end - at - 4) + ":";  // "--ink:"
    const std::size_t value = palette.find(name) + name.size();
    rule.replace(at, end + 1 - at, palette.substr(value, palette.find(';', value) - value));
  }
  return rule;
}

std::string svg_rules(std::string_view palette) {
  // The paper first: a file alone has no page behind it.
  std::string out = resolved("\n.paper{fill:var(--bg)}\n.good{fill:var(--good)}\n", palette);
  for (std::size_t i = 0; i < kColours; ++i)
    out += resolved(fmt::format(".k{0}.part{{fill:var(--k{0})}}\n", i), palette);
  for (std::string_view rest = kRules; !rest.empty();) {
    const std::string rule(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rule.size() + 1, rest.size()));
    if (!rule.starts_with("svg ") || rule.find(":hover") != std::string::npos) continue;
    const std::string own = rule.substr(4);  // without "svg "
    const std::size_t brace = own.find('{');
    if (own.find("var(--c)") == std::string::npos) {
      out += resolved(own, palette) + "\n";
      continue;
    }
    // --c is the colour of a class beside it.
    for (std::size_t i = 0; i < kColours; ++i) {
      std::string body = own.substr(brace);
      for (std::size_t at; (at = body.find("var(--c)")) != std::string::npos;)
        body.replace(at, 8, fmt::format("var(--k{})", i));
      out += resolved(fmt::format("{}.k{}{}", own.substr(0, brace), i, body), palette) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string svg_style() {
  return "svg{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,Arial,sans-serif}" + svg_rules(kLight) +
         "@media(prefers-color-scheme:dark){" + svg_rules(kDark) + "}\n";
}

}  // namespace trainhost::report::html
