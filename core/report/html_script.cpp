// The script of all HTML pages. It only adds interaction: without it, nothing is missing from a page that is
// not live. Changing a byte of this text invalidates kScriptHash, and browsers then refuse to run it. Nothing
// from the page is evaluated; text from outside is assigned to textContent or passes through esc(). ES5, so
// that old browsers run it.
#include "core/report/html_style.hpp"

namespace trainhost::report::html {

const char* const kScript = R"js(
(function () {
  'use strict';
  var d = document, root = d.documentElement, tip = d.getElementById('tip'), exact = d.getElementById('exact');
  function each(q, f, e) { Array.prototype.forEach.call((e || d).querySelectorAll(q), f); }
  function esc(t) { return String(t).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;'); }
  function commas(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ','); }
  root.classList.add('js');

  function show(text, x, y) {
    tip.hidden = false;
    if (tip.textContent !== text) tip.textContent = text;
    var l = x + 14, t = y + 16;
    if (l + tip.offsetWidth > root.clientWidth - 6) l = Math.max(6, x - tip.offsetWidth - 12);
    if (t + tip.offsetHeight > window.innerHeight - 6) t = Math.max(6, y - tip.offsetHeight - 12);
    tip.style.left = l + 'px'; tip.style.top = t + 'px';
  }
  d.addEventListener('pointermove', function (v) {
    var e = v.target.closest ? v.target.closest('.hit') : null;
    if (e && e.tip) show(e.tip, v.clientX, v.clientY);
    else if (!(v.target.closest && v.target.closest('.plot'))) tip.hidden = true;
  });

  // Files made from the page: tables and charts as CSV, charts as SVG and PNG.
  function save(name, type, content) {
    var a = d.createElement('a'), url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: type }));
    a.href = url; a.download = name.replace(/[^A-Za-z0-9]+/g, '-').replace(/^-|-$/g, '').toLowerCase().slice(0, 60) + type.replace(/^.*\/(svg|png|csv).*$/, '.$1');
    d.body.appendChild(a); a.click(); d.body.removeChild(a);
    setTimeout(function () { URL.revokeObjectURL(url); }, 1000);
  }
  function field(t) { t = String(t); return /[",\n]/.test(t) ? '"' + t.replace(/"/g, '""') + '"' : t; }
  function tableCsv(table) {
    return Array.prototype.map.call(table.rows, function (r) {
      return Array.prototype.map.call(r.cells, function (c) {
        var n = c.querySelector('data');
        return field(n ? n.value : c.textContent.trim());
      }).join(',');
    }).join('\n') + '\n';
  }
  var kStyles = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity', 'paint-order', 'font-family', 'font-size', 'font-weight'];
  function svgText(svg) {
    var copy = svg.cloneNode(true), from = svg.querySelectorAll('*'), to = copy.querySelectorAll('*'), box = svg.viewBox.baseVal;
    for (var i = 0; i < from.length; ++i) {
      var s = getComputedStyle(from[i]);
      kStyles.forEach(function (k) { to[i].style.setProperty(k, s.getPropertyValue(k)); });
    }
    each('.cursor', function (e) { e.parentNode.removeChild(e); }, copy);
    copy.setAttribute('width', box.width); copy.setAttribute('height', box.height);
    copy.removeAttribute('tabindex');
    copy.style.background = getComputedStyle(d.body).backgroundColor;
    return new XMLSerializer().serializeToString(copy);
  }
  function savePng(name, svg) {
    var img = new Image(), box = svg.viewBox.baseVal;
    img.onload = function () {
      var c = d.createElement('canvas'), g = c.getContext('2d');
      c.width = box.width * 2; c.height = box.height * 2;
      g.fillStyle = getComputedStyle(d.body).backgroundColor;
      g.fillRect(0, 0, c.width, c.height);
      g.drawImage(img, 0, 0, c.width, c.height);
      c.toBlob(function (b) { save(name, 'image/png', b); root.setAttribute('data-saved', 'png ' + b.size); });
    };
    img.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(svgText(svg));
  }
  function tool(box, text, what, f) {
    var b = d.createElement('button');
    b.type = 'button'; b.textContent = text; b.setAttribute('aria-label', 'Save ' + what + ' as ' + text);
    b.addEventListener('click', f);
    box.appendChild(b);
  }
  function tools(parent, before) {
    var box = d.createElement('div');
    box.className = 'tools';
    parent.insertBefore(box, before);
    return box;
  }

  // Tables that can be sorted: a click on a heading, or Enter on it; sums stay below.
  function key(cell) {
    var n = cell && cell.querySelector('data');
    if (n) return Number(n.value);
    var t = cell ? cell.textContent : '';
    return t !== '' && isFinite(t) ? Number(t) : t;
  }
  function sortBy(th) {
    var head = th.parentNode, at = Array.prototype.indexOf.call(head.children, th), body = head.closest('table').tBodies[0];
    var up = th.getAttribute('aria-sort') !== 'ascending';
    each('th', function (o) { o.removeAttribute('aria-sort'); }, head);
    th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    Array.prototype.slice.call(body.rows).sort(function (a, b) {
      var p = key(a.cells[at]), q = key(b.cells[at]), c = p < q ? -1 : p > q ? 1 : 0;
      return up ? c : -c;
    }).forEach(function (r) { body.appendChild(r); });
  }

  function sizes(e) {
    var on = exact.getAttribute('aria-pressed') === 'true';
    each('data.b', function (n) {
      if (n.short === undefined) n.short = n.textContent;
      n.textContent = on ? commas(n.value) : n.short;
    }, e);
  }
  exact.addEventListener('click', function () {
    exact.setAttribute('aria-pressed', String(exact.getAttribute('aria-pressed') !== 'true'));
    sizes(d);
  });

  // Adds interaction to a part of the page: at the start to all of it, later to what a live page replaces.
  function decorate(e) {
    // The title of a mark, which browsers show after a delay, becomes an immediate tooltip.
    each('svg .hit', function (m) {
      var t = m.querySelector('title');
      if (t) { m.tip = t.textContent; m.removeChild(t); }
    }, e);
    // Pointing at an entry of a legend fades all other marks of its chart.
    each('.legend li', function (li) {
      var f = li.closest('figure'), c = li.getAttribute('data-c');
      function dim(on) { each('svg .part, svg .curve, svg .dot, svg .range', function (p) { p.classList.toggle('faded', on && !p.classList.contains(c)); }, f); }
      li.addEventListener('pointerenter', function () { dim(true); });
      li.addEventListener('pointerleave', function () { dim(false); });
    }, e);
    each('.scroll', function (s) {
      var t = s.querySelector('table'), heads = t ? t.querySelectorAll('thead th') : [], svg = s.querySelector('svg');
      var what = t && t.caption ? t.caption.textContent : '', h = s.closest('section');
      if (!what && svg && svg.querySelector('title')) what = svg.querySelector('title').textContent;
      if (!what && h && h.querySelector('h2')) what = h.querySelector('h2').textContent;
      var name = (d.title + ' ' + what).replace(/:.*? /, ' ');
      // What is wider than the window is scrolled, also by keyboard.
      if (s.scrollWidth > s.clientWidth) { s.tabIndex = 0; s.setAttribute('role', 'group'); s.setAttribute('aria-label', what || 'wide content'); }
      if (t) {
        each('tbody tr', function (r) {
          for (var i = 0; i < r.cells.length && i < heads.length; ++i) r.cells[i].setAttribute('data-h', heads[i].textContent);
        }, t);
        tool(tools(s.parentNode, s), 'CSV', what, function () { save(name, 'text/csv', tableCsv(t)); });
      } else if (svg) {
        var box = tools(s.parentNode, s);
        tool(box, 'SVG', what, function () { save(name, 'image/svg+xml', svgText(svg)); });
        tool(box, 'PNG', what, function () { savePng(name, svg); });
      }
    }, e);
    each('table[data-sort] th', function (th) {
      th.classList.add('sort'); th.tabIndex = 0;
      th.addEventListener('click', function () { sortBy(th); });
      th.addEventListener('keydown', function (v) { if (v.key === 'Enter' || v.key === ' ') { v.preventDefault(); sortBy(th); } });
    }, e);
    if (exact.getAttribute('aria-pressed') === 'true') sizes(e);
  }

  // Curves of runs, drawn in the width that there is, from {id, title, x, unit, zero, log, noisy, series: [{name, c, x, y,
  // low, high}], limit: {value, label}}.
  var charts = [], smooth = d.getElementById('smooth'), log = d.getElementById('logscale');
  function units(v) {
    var k = 0, u = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    while (Math.abs(v) >= 1023.5 && k < 5) { v /= 1024; ++k; }
    return Number(v.toPrecision(3)) + ' ' + u[k];
  }
  function num(v, unit) {
    if (v === null || v === undefined || !isFinite(v)) return '-';
    if (unit === 'bytes') return units(v);
    var a = Math.abs(v), t = v === 0 ? '0' : a >= 1e7 || a < 1e-3 ? String(Number(v.toPrecision(3)).toExponential()) : a >= 1000 ? commas(Math.round(v)) : String(Number(v.toPrecision(4)));
    return unit ? t + ' ' + unit : t;
  }
  function ticks(a, b, n, unit) {
    var raw = (b - a) / n, p, step, out = [];
    if (unit === 'bytes') step = Math.pow(2, Math.ceil(Math.log(raw) / Math.LN2));
    else {
      p = Math.pow(10, Math.floor(Math.log(raw) / Math.LN10));
      step = p * (raw / p <= 1 ? 1 : raw / p <= 2 ? 2 : raw / p <= 5 ? 5 : 10);
    }
    for (var v = Math.ceil(a / step - 1e-9) * step; v <= b + step * 1e-6 && out.length < 100; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
    return out;
  }
  function smoothed(y, w) {
    var s = 0, n = 0;
    return y.map(function (v) {
      if (v === null) return null;
      s = w * s + (1 - w) * v; n = w * n + (1 - w);
      return s / n;
    });
  }
  function figureOf(c) {
    var all = d.getElementById('charts'), f = all.querySelector('figure[data-chart="' + c.id + '"]');
    if (!f) {
      f = d.createElement('figure');
      f.setAttribute('data-chart', c.id);
      f.innerHTML = '<figcaption>' + esc(c.title) + '</figcaption><div class="plot"></div>';
      all.appendChild(f);
    }
    if (!f.querySelector('.tools')) {
      var box = tools(f, f.querySelector('.plot')), name = d.title.replace(/:.*/, '') + ' ' + c.title;
      tool(box, 'CSV', c.title, function () { save(name, 'text/csv', chartCsv(f.chart)); });
      tool(box, 'SVG', c.title, function () { save(name, 'image/svg+xml', svgText(f.querySelector('svg'))); });
      tool(box, 'PNG', c.title, function () { savePng(name, f.querySelector('svg')); });
    }
    return f;
  }
  function chartCsv(c) {
    var rows = {}, heads = [c.x];
    c.series.forEach(function (s) {
      var at = heads.length;
      heads.push(s.name);
      if (s.low) heads.push(s.name + ' min', s.name + ' max');
      s.x.forEach(function (x, i) {
        var r = rows[x] || (rows[x] = []);
        r[at] = s.y[i];
        if (s.low) { r[at + 1] = s.low[i]; r[at + 2] = s.high[i]; }
      });
    });
    return heads.map(field).join(',') + '\n' + Object.keys(rows).map(Number).sort(function (a, b) { return a - b; }).map(function (x) {
      var line = [x];
      for (var i = 1; i < heads.length; ++i) line.push(rows[x][i] === undefined || rows[x][i] === null ? '' : rows[x][i]);
      return line.join(',');
    }).join('\n') + '\n';
  }
  function draw(c) {
    var f = figureOf(c), box = f.querySelector('.plot'), W = Math.max(260, box.clientWidth), H = Math.round(Math.min(300, Math.max(190, W * 0.5)));
    var L = 66, R = W - 12, T = 12, B = H - 36, uselog = log && log.checked && c.log, w = smooth && c.noisy ? Number(smooth.value) / 100 : 0;
    var x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity, out = '', old = f.at;
    function yrange(v) { if (v !== null && isFinite(v) && (!uselog || v > 0)) { y0 = Math.min(y0, v); y1 = Math.max(y1, v); } }
    f.chart = c;
    var series = c.series.map(function (s) {
      var y = smoothed(s.y, w);
      s.x.forEach(function (x) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); });
      y.forEach(yrange);
      if (s.low && !w) { s.low.forEach(yrange); s.high.forEach(yrange); }
      return { s: s, y: y };
    });
    if (!isFinite(y0)) { box.textContent = 'No values yet.'; return; }
    if (c.zero) y0 = 0;
    if (c.limit && c.limit.value <= 3 * y1) y1 = Math.max(y1, c.limit.value * 1.02);
    if (y1 <= y0) { y1 = y0 + (Math.abs(y0) || 1) * 0.1; if (!c.zero) y0 -= (Math.abs(y0) || 1) * 0.1; }
    if (x1 <= x0) { x0 -= 1; x1 += 1; }
    if (!uselog && !c.zero) { var m = (y1 - y0) * 0.05; y0 -= m; y1 += m; }
    function X(v) { return L + (v - x0) / (x1 - x0) * (R - L); }
    function Y(v) { return uselog ? B - Math.log(v / y0) / Math.log(y1 / y0) * (B - T) : B - (v - y0) / (y1 - y0) * (B - T); }
    function p(v) { return Math.round(v * 10) / 10; }
    var marks = uselog ? [] : ticks(y0, y1, 5, c.unit);
    if (uselog) {
      for (var e = Math.floor(Math.log(y0) / Math.LN10); e <= Math.log(y1) / Math.LN10; ++e) [1, 2, 5].forEach(function (k) { var v = k * Math.pow(10, e); if (v >= y0 && v <= y1) marks.push(v); });
      if (marks.length < 2) marks = [y0, y1];
    }
    marks.forEach(function (v) {
      out += '<path class="grid" d="M' + L + ' ' + p(Y(v)) + 'H' + R + '"/><text class="dim" text-anchor="end" x="' + (L - 7) + '" y="' + p(Y(v) + 4) + '">' + esc(num(v, c.unit === 'bytes' ? 'bytes' : '')) + '</text>';
    });
    ticks(x0, x1, Math.max(2, Math.floor((R - L) / 60)), '').forEach(function (v) {
      if (c.x === 'step' && v % 1) return;
      out += '<text class="dim" text-anchor="middle" x="' + p(Math.min(Math.max(X(v), L + 6), R - 10)) + '" y="' + (B + 17) + '">' + esc(num(v, '')) + '</text>';
    });
    out += '<text class="dim" text-anchor="middle" x="' + p((L + R) / 2) + '" y="' + (H - 3) + '">' + esc(c.x) + '</text>';
    series.forEach(function (q) {
      var s = q.s, path = '', up = '', down = '', pen = false, dots = '', few = s.x.length <= 40;
      s.x.forEach(function (x, i) {
        var v = q.y[i], ok = v !== null && (!uselog || v > 0);
        if (ok) path += (pen ? 'L' : 'M') + p(X(x)) + ' ' + p(Y(v));
        if (ok && few) dots += '<circle class="dot ' + s.c + '" cx="' + p(X(x)) + '" cy="' + p(Y(v)) + '" r="' + (s.x.length > 1 ? 2.5 : 4) + '"/>';
        if (ok && s.low && s.low[i] !== null && (!uselog || s.low[i] > 0) && !w) {
          up += (up ? 'L' : 'M') + p(X(x)) + ' ' + p(Y(s.high[i]));
          down = 'L' + p(X(x)) + ' ' + p(Y(s.low[i])) + down;
        }
        pen = ok;
      });
      if (up) out += '<path class="range ' + s.c + '" d="' + up + down + 'Z"/>';
      out += '<path class="curve ' + s.c + '" d="' + path + '"/>' + dots;
    });
    if (c.limit && c.limit.value <= y1) out += '<path class="limit" d="M' + L + ' ' + p(Y(c.limit.value)) + 'H' + R + '"/><text class="bad strong halo" text-anchor="end" x="' + R + '" y="' + p(Y(c.limit.value) + 15) + '">' + esc(c.limit.label) + '</text>';
    out += '<path class="cross cursor" visibility="hidden" d=""/>';
    var first = c.series[0], say = c.series.map(function (s) {
      var y = s.y.filter(function (v) { return v !== null; });
      return s.name + ': first ' + num(y[0], c.unit) + ', last ' + num(y[y.length - 1], c.unit) + ', smallest ' + num(Math.min.apply(null, y), c.unit);
    }).join('; ');
    box.innerHTML = '<svg viewBox="0 0 ' + W + ' ' + H + '" role="img" tabindex="0" aria-label="' + esc(c.title + '. ' + say + '. Arrow keys read the values.') + '">' + out + '</svg>';
    var legend = f.querySelector('.legend'), items = c.series.length < 2 ? '' : c.series.map(function (s) { return '<li data-c="' + s.c + '"><i class="' + s.c + '"></i>' + esc(s.name) + '</li>'; }).join('');
    if (!legend && items) { legend = d.createElement('ul'); legend.className = 'legend'; f.insertBefore(legend, box); }
    if (legend && legend.innerHTML !== items) legend.innerHTML = items;
    var svg = box.firstChild, line = svg.querySelector('.cursor');
    // The values at the step of the first curve that is nearest to `at`.
    function read(at, clientX, clientY) {
      var n = 0, text = '';
      first.x.forEach(function (x, i) { if (Math.abs(x - at) < Math.abs(first.x[n] - at)) n = i; });
      f.at = first.x[n];
      c.series.forEach(function (s) {
        var k = 0;
        s.x.forEach(function (x, i) { if (Math.abs(x - f.at) < Math.abs(s.x[k] - f.at)) k = i; });
        if (s.x.length) text += '\n' + s.name + (s.x[k] === f.at ? '' : ' (' + commas(s.x[k]) + ')') + ': ' + num(s.y[k], c.unit) + (s.low ? ' (' + num(s.low[k], '') + ' to ' + num(s.high[k], '') + ')' : '');
      });
      line.setAttribute('d', 'M' + p(X(f.at)) + ' ' + T + 'V' + B);
      line.setAttribute('visibility', 'visible');
      if (clientX !== undefined) show(c.x + ' ' + num(f.at, '') + text, clientX, clientY);
    }
    function hide() { line.setAttribute('visibility', 'hidden'); tip.hidden = true; f.at = undefined; }
    svg.addEventListener('pointermove', function (v) {
      var r = svg.getBoundingClientRect();
      read(x0 + ((v.clientX - r.left) * W / r.width - L) / (R - L) * (x1 - x0), v.clientX, v.clientY);
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('blur', hide);
    svg.addEventListener('keydown', function (v) {
      var by = v.key === 'ArrowRight' ? 1 : v.key === 'ArrowLeft' ? -1 : 0, r = svg.getBoundingClientRect();
      if (v.key === 'Escape') return hide();
      if (!by) return;
      v.preventDefault();
      var n = f.at === undefined ? (by > 0 ? 0 : first.x.length - 1) : Math.min(Math.max(first.x.indexOf(f.at) + by, 0), first.x.length - 1);
      read(first.x[n], r.left + X(first.x[n]) * r.width / W, r.top + 20);
    });
    if (old !== undefined) read(old);
  }
  function drawAll() { if (d.getElementById('charts')) charts.forEach(function (c) { if (c.series.length) draw(c); }); }
  [smooth, log].forEach(function (e) { if (e) e.addEventListener('input', drawAll); });
  var width = root.clientWidth;
  window.addEventListener('resize', function () { if (root.clientWidth !== width) { width = root.clientWidth; drawAll(); } });

  var data = d.getElementById('data');
  if (data) charts = JSON.parse(data.textContent).charts;
  decorate(d);
  drawAll();

  // A live page: each message has all curves, and the parts of the page that can change. A part is replaced only when it
  // has changed, so that what is selected or opened elsewhere stays.
  if (d.body.hasAttribute('data-live') && window.EventSource) {
    var parts = {}, source = new EventSource('events'), link = d.getElementById('link');
    source.onmessage = function (v) {
      var m = JSON.parse(v.data);
      link.textContent = '';
      d.title = m.title;
      Object.keys(m.parts).forEach(function (id) {
        var e = d.getElementById(id);
        if (!e || parts[id] === m.parts[id]) return;
        parts[id] = m.parts[id];
        e.innerHTML = m.parts[id];
        decorate(e);
      });
      charts = m.charts;
      var held = d.activeElement && d.activeElement.closest && d.activeElement.closest('figure');
      drawAll();
      if (held && held.querySelector('svg') && !held.contains(d.activeElement)) held.querySelector('svg').focus({ preventScroll: true });
      root.setAttribute('data-updates', String(Number(root.getAttribute('data-updates') || 0) + 1));
      if (m.ended) { source.close(); link.textContent = 'The run has ended; this page shows its last state.'; }
    };
    source.onerror = function () { if (source.readyState !== 2) link.textContent = 'No connection to trainhost: the run has ended, or its machine cannot be reached. The page tries again.'; };
  }

  window.addEventListener('beforeprint', function () { each('details', function (e) { e.open = true; }); });
  root.setAttribute('data-ready', '1');
})();
)js";

// base64 of the SHA-256 of kScript.
const char* const kScriptHash = "jeOlRP8hEOhppajmrH3wP76GokQozWXoy/7VC4TtcJc=";

}  // namespace trainhost::report::html
