"""What holds for every page, in light and dark and from 360 pixels: names, labels, contrast, no cut table, a silent
console. TRAINHOST_AXE names an axe.min.js (of axe-core), whose rules are checked too."""

import os

accessible = r"""(function () {
  var bad = [], d = document;
  function all(q) { return Array.from(d.querySelectorAll(q)); }
  function name(e) { return (e.getAttribute('aria-label') || e.textContent || '').trim() || (e.querySelector('title') || {}).textContent; }
  if (!d.documentElement.lang) bad.push('no language');
  if (all('main').length !== 1 || all('h1').length !== 1) bad.push('landmarks');
  all('button, svg[role=img], [role=group], summary').forEach(function (e) { if (!name(e)) bad.push('no name: ' + e.outerHTML.slice(0, 80)); });
  all('input').forEach(function (e) { if (!e.labels.length) bad.push('no label: ' + e.id); });
  all('th').forEach(function (e) { if (!e.scope) bad.push('no scope: ' + e.textContent); });
  all('[tabindex]').forEach(function (e) { if (e.tabIndex > 0) bad.push('order of focus: ' + e.outerHTML.slice(0, 80)); });
  var level = 1, ids = {};
  all('h1, h2, h3').forEach(function (e) { var n = Number(e.tagName[1]); if (n > level + 1) bad.push('heading: ' + e.textContent); level = n; });
  all('[id]').forEach(function (e) { if (ids[e.id]) bad.push('twice: ' + e.id); ids[e.id] = 1; });
  function rgb(c) { return c.match(/[\d.]+/g).map(Number); }
  function light(c) { return [0.2126, 0.7152, 0.0722].reduce(function (s, w, i) { var v = c[i] / 255; return s + w * (v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4)); }, 0); }
  function behind(e) { for (; e; e = e.parentElement) { var c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.99) return c; } return [255, 255, 255]; }
  var seen = 0;
  all('p, td, th, li, h1, h2, h3, button, figcaption, label, summary, pre, code, data, svg text').forEach(function (e) {
    if (!e.textContent.trim() || !e.getClientRects().length || e.classList.contains('on')) return;
    var s = getComputedStyle(e), front = rgb(e.closest('svg') ? s.fill : s.color), back = behind(e);
    var a = light(front), b = light(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    ++seen;
    if (ratio < 4.5) bad.push('contrast ' + ratio.toFixed(2) + ': ' + e.textContent.slice(0, 40));
  });
  if (seen < 20) bad.push('only ' + seen + ' texts');
  return bad;
})()"""

AXE = os.environ.get("TRAINHOST_AXE")
axe_result = """axe.run(document, {resultTypes: ['violations'], iframes: false}).then(r => r.violations.map(
  v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 80)).join(' | ')))"""


def faults(page, pictures=None, name="page"):
    """Sentences about what is wrong. `pictures`: a folder for screenshots."""
    found = []
    for dark in (False, True):
        page.dark(dark)
        found += [("dark: " if dark else "light: ") + f for f in page.evaluate(accessible)]
        if AXE:
            page.evaluate(open(AXE).read() + ";1")
            found += [("axe, dark: " if dark else "axe, light: ") + f for f in page.evaluate(axe_result)]
    page.dark(False)
    for width in (360, 800, 1400):
        page.resize(width)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"{wide} pixels on a screen of {width}")
        cut = page.evaluate("[...document.querySelectorAll('table')].filter(t => t.getClientRects().length && "
                            "t.getBoundingClientRect().right > innerWidth + 1).map(t => t.outerHTML.slice(0, 60))")
        if width <= 400 and cut:
            found.append(f"tables are cut at {width}: {cut}")
        wide = page.evaluate("[...document.querySelectorAll('.scroll svg')].filter(s => s.getClientRects().length && "
                             "s.parentNode.scrollWidth > s.parentNode.clientWidth).map(s => s.textContent.slice(0, 60))")
        if wide:
            found.append(f"charts are scrolled at {width}: {wide}")
        if pictures:
            page.screenshot(os.path.join(pictures, f"{name}-{width}.png"))
    page.resize(1000)
    return found + [f"console: {c}" for c in page.console]
