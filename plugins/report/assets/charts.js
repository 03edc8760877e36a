// Curves, bars and the timeline, drawn for the width that there is; text keeps its size on a phone.
const FRAME = { left: 46, right: 14, top: 12, bottom: 40 };

// Results by network, and by data set where there are several of them.
function groupsOf(chapter, networks, hidden) {
  const several = new Set(chapter.results.map((r) => r[COLUMN.data])).size > 1;
  const found = new Map();
  for (const r of chapter.results) {
    if (hidden.has(r[COLUMN.network]) || r[COLUMN.status] === 'error') continue;
    const key = several ? `${r[COLUMN.network]}\u0000${r[COLUMN.data]}` : String(r[COLUMN.network]);
    if (!found.has(key)) found.set(key, { network: r[COLUMN.network], data: several ? r[COLUMN.data] : '', results: [] });
    found.get(key).results.push(r);
  }
  const datas = [...new Set(chapter.results.map((r) => r[COLUMN.data]))];
  return [...found.values()].map((g) => ({ ...g, colour: networks[g.network].colour, dash: ['', '6 3', '2 3'][datas.indexOf(g.data) % 3] || '',
    name: networks[g.network].short + (g.data ? ` ${g.data}` : '') }));
}

// The share of inputs that is robust at each radius: what is proved, and what is not refuted.
function stepsOf(group) {
  const total = group.results.length;
  const lows = [], highs = [];
  for (const r of group.results) {
    if (r[COLUMN.status] === 'misclassified') { lows.push(-1); highs.push(-1); continue; }
    lows.push(isNumber(r[COLUMN.lower]) ? r[COLUMN.lower] : 0);
    highs.push(isNumber(r[COLUMN.upper]) ? r[COLUMN.upper] : Infinity);
  }
  lows.sort((a, b) => a - b);
  highs.sort((a, b) => a - b);
  const below = (values, x, equal) => {
    let low = 0, high = values.length;
    while (low < high) { const mid = (low + high) >> 1; if (values[mid] < x || (equal && values[mid] === x)) low = mid + 1; else high = mid; }
    return low;
  };
  return { lows, highs, at: (x) => [(total - below(lows, x, false)) / total, (total - below(highs, x, true)) / total] };
}

// Verdicts at single radii: a point for each.
function pointsOf(group) {
  const at = new Map();
  for (const r of group.results) {
    const x = r[COLUMN.epsilon];
    if (!isNumber(x)) continue;
    if (!at.has(x)) at.set(x, { proved: 0, refuted: 0, all: 0 });
    const count = at.get(x);
    count.all += 1;
    if (r[COLUMN.status] === 'proved') count.proved += 1;
    if (r[COLUMN.status] === 'refuted' || r[COLUMN.status] === 'misclassified') count.refuted += 1;
  }
  return [...at.entries()].sort((a, b) => a[0] - b[0]).map(([x, c]) => [x, c.proved / c.all, (c.all - c.refuted) / c.all]);
}

function axes(svg, w, h, x, xs, y, ys, xName, yText) {
  for (const v of ys) {
    svg.append(sv('line', { class: 'grid', x1: FRAME.left, x2: w - FRAME.right, y1: y(v), y2: y(v) }), sv('text', { x: FRAME.left - 7, y: y(v) + 4, 'text-anchor': 'end' }, yText(v)));
  }
  for (const v of xs) svg.append(sv('line', { class: 'axis', x1: x(v), x2: x(v), y1: h - FRAME.bottom, y2: h - FRAME.bottom + 4 }), sv('text', { x: x(v), y: h - FRAME.bottom + 18, 'text-anchor': 'middle' }, show(v)));
  svg.append(sv('line', { class: 'axis', x1: FRAME.left, x2: w - FRAME.right, y1: h - FRAME.bottom, y2: h - FRAME.bottom }));
  svg.append(sv('text', { x: (FRAME.left + w - FRAME.right) / 2, y: h - 5, 'text-anchor': 'middle' }, xName));
}

function drawCurve(chapter, networks, hidden, w) {
  const h = Math.round(Math.min(400, Math.max(250, w * 0.46)));
  const groups = groupsOf(chapter, networks, hidden);
  const sampled = !chapter.brackets;
  const finite = groups.flatMap((g) => g.results.flatMap((r) => (sampled ? [r[COLUMN.epsilon]] : [r[COLUMN.lower], r[COLUMN.upper]]))).filter(isNumber);
  const top = (finite.length ? Math.max(...finite.slice(0, 1), finite.reduce((a, b) => Math.max(a, b), 0)) : 1) * 1.04 || 1;
  const x = (v) => FRAME.left + (v / top) * (w - FRAME.left - FRAME.right);
  const y = (v) => FRAME.top + (1 - v) * (h - FRAME.top - FRAME.bottom);
  const svg = sv('svg', { viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': 'Share of inputs that are robust, by radius' });
  axes(svg, w, h, x, ticks(0, top, w / 90), y, [0, 0.25, 0.5, 0.75, 1], `radius${chapter.norm ? ` (${chapter.norm})` : ''}`, (v) => `${100 * v} %`);
  for (const v of chapter.thresholds) if (v <= top) svg.append(sv('line', { class: 'rule', x1: x(v), x2: x(v), y1: FRAME.top, y2: h - FRAME.bottom }));
  const readers = [];
  for (const g of groups) {
    if (sampled) readers.push(drawPoints(svg, g, x, y));
    else readers.push(drawSteps(svg, g, x, y, top));
  }
  return { svg, w, h, x, top, readers, sampled, xs: sampled ? [...new Set(finite)].sort((a, b) => a - b) : null };
}

function drawSteps(svg, g, x, y, top) {
  const steps = stepsOf(g);
  const breaks = [...new Set([0, top, ...steps.lows, ...steps.highs])].filter((v) => v >= 0 && v <= top).sort((a, b) => a - b);
  const path = (side) => {
    let text = '', last = null;
    breaks.forEach((v, k) => {
      // the value on the open interval that ends at v, then the one at v itself
      const next = steps.at((v + (breaks[k + 1] ?? v)) / 2)[side];
      text += last === null ? `M${x(v).toFixed(1)} ${y(next).toFixed(1)}` : `H${x(v).toFixed(1)}V${y(next).toFixed(1)}`;
      last = next;
    });
    return text;
  };
  const proved = path(0), possible = path(1);
  const back = reversed(possible);
  svg.append(sv('path', { d: `${proved}L${back}Z`, fill: g.colour, opacity: 0.2 }));
  svg.append(sv('path', { d: possible, fill: 'none', stroke: g.colour, 'stroke-width': 1, opacity: 0.75, 'stroke-dasharray': '3 2' }));
  svg.append(sv('path', { d: proved, fill: 'none', stroke: g.colour, 'stroke-width': 2.2, 'stroke-linejoin': 'round', 'stroke-dasharray': g.dash || null }));
  return { name: g.name, colour: g.colour, at: steps.at };
}

// A path of M, H and V as points from its end to its start.
function reversed(path) {
  const points = [];
  let px = 0, py = 0;
  for (const [, kind, numbers] of path.matchAll(/([MHV])([^MHV]*)/g)) {
    const values = numbers.trim().split(' ').map(Number);
    if (kind === 'M') [px, py] = values; else if (kind === 'H') [px] = values; else [py] = values;
    points.push(`${px} ${py}`);
  }
  return points.reverse().join('L');
}

function drawPoints(svg, g, x, y) {
  const points = pointsOf(g);
  const line = (side) => points.map((p, k) => `${k ? 'L' : 'M'}${x(p[0]).toFixed(1)} ${y(p[side]).toFixed(1)}`).join('');
  if (points.length > 1) {
    const band = `${line(1)}L${[...points].reverse().map((p) => `${x(p[0]).toFixed(1)} ${y(p[2]).toFixed(1)}`).join('L')}Z`;
    svg.append(sv('path', { d: band, fill: g.colour, opacity: 0.2 }), sv('path', { d: line(1), fill: 'none', stroke: g.colour, 'stroke-width': 2.2, 'stroke-dasharray': g.dash || null }));
  }
  for (const p of points) {
    svg.append(sv('line', { x1: x(p[0]), x2: x(p[0]), y1: y(p[1]), y2: y(p[2]), stroke: g.colour, 'stroke-width': 5, opacity: 0.35 }), sv('circle', { cx: x(p[0]), cy: y(p[1]), r: 4, fill: g.colour }));
  }
  return { name: g.name, colour: g.colour, at: (v) => { const p = points.find((q) => q[0] === v); return p ? [p[1], p[2]] : [null, null]; } };
}

// A line that follows the pointer and says what every curve is there.
function follow(holder, chart) {
  const cursor = sv('line', { class: 'cursor', y1: FRAME.top, y2: chart.h - FRAME.bottom, visibility: 'hidden' });
  const tip = el('div', { class: 'tip', hidden: true });
  chart.svg.append(cursor);
  holder.append(tip);
  chart.svg.addEventListener('pointerleave', () => { cursor.setAttribute('visibility', 'hidden'); tip.hidden = true; });
  chart.svg.addEventListener('pointermove', (event) => {
    const box = chart.svg.getBoundingClientRect();
    let value = ((event.clientX - box.left) * (chart.w / box.width) - FRAME.left) / (chart.w - FRAME.left - FRAME.right) * chart.top;
    if (value < 0 || value > chart.top) return;
    if (chart.xs && chart.xs.length) value = chart.xs.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
    cursor.setAttribute('x1', chart.x(value));
    cursor.setAttribute('x2', chart.x(value));
    cursor.setAttribute('visibility', 'visible');
    tip.replaceChildren(el('b', {}, `radius ${show(value, 3)}`), ...chart.readers.map((r) => { const [low, high] = r.at(value); return el('div', {}, swatch(r.colour), `${r.name}: ${low === null ? '–' : span(low, high)}`); }));
    tip.hidden = false;
    const left = event.clientX - box.left + 14;
    tip.style.left = `${left + tip.offsetWidth > box.width ? Math.max(0, left - tip.offsetWidth - 28) : left}px`;
    tip.style.top = `${Math.max(0, event.clientY - box.top - 20)}px`;
  });
}

// Where nothing has a radius: how many questions were decided within a time.
function drawDecided(chapter, networks, hidden, w) {
  const h = Math.round(Math.min(340, Math.max(240, w * 0.4)));
  const groups = groupsOf(chapter, networks, hidden).map((g) => ({ ...g, times: g.results.filter((r) => ['proved', 'refuted'].includes(r[COLUMN.status]) && !r[COLUMN.reused]).map((r) => Math.max(0.001, Number(r[COLUMN.seconds]) || 0)).sort((a, b) => a - b) }));
  const all = groups.flatMap((g) => g.times);
  const low = Math.log10(Math.min(0.01, ...all)), high = Math.log10(Math.max(1, ...all)) + 0.05;
  const most = Math.max(1, ...groups.map((g) => g.results.length));
  const x = (v) => FRAME.left + ((Math.log10(v) - low) / (high - low)) * (w - FRAME.left - FRAME.right);
  const y = (v) => FRAME.top + (1 - v / most) * (h - FRAME.top - FRAME.bottom);
  const svg = sv('svg', { viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': 'Questions decided within a time' });
  const powers = [];
  for (let k = Math.ceil(low); k <= high; k += 1) powers.push(10 ** k);
  axes(svg, w, h, x, powers, y, ticks(0, most, 5, true), 'seconds', (v) => v);
  for (const g of groups) {
    let text = `M${x(10 ** low)} ${y(0)}`;
    g.times.forEach((t, k) => { text += `H${x(t).toFixed(1)}V${y(k + 1).toFixed(1)}`; });
    svg.append(sv('path', { d: `${text}H${w - FRAME.right}`, fill: 'none', stroke: g.colour, 'stroke-width': 2.2 }));
  }
  return { svg };
}

// Who answered what and when: one lane per verifier, a mark per answer as long as it took.
function drawTimeline(chapter, w) {
  const events = chapter.events.filter((e) => e[0] > 0);
  if (!events.length) return null;
  const lanes = chapter.verifiers.map((name, k) => [name, k]).filter(([, k]) => events.some((e) => e[1] === k));
  const start = events.reduce((a, e) => Math.min(a, e[0] - e[3]), Infinity), end = events.reduce((a, e) => Math.max(a, e[0]), -Infinity);
  const wide = w > 560, left = wide ? 150 : 8, lane = wide ? 26 : 40;
  const h = lanes.length * lane + 34, length = Math.max(end - start, 0.5);
  const x = (t) => left + ((t - start) / length) * (w - left - 14);
  const svg = sv('svg', { viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': 'Answers by verifier over time' });
  for (const t of ticks(0, length, w / 110)) svg.append(sv('line', { class: 'grid', x1: x(start + t), x2: x(start + t), y1: 0, y2: h - 24 }), sv('text', { x: x(start + t), y: h - 8, 'text-anchor': 'middle' }, seconds(t)));
  lanes.forEach(([name, k], row) => {
    const text = name || 'nobody';
    svg.append(sv('text', { class: 'name', x: wide ? left - 8 : left, y: row * lane + (wide ? 17 : 12), 'text-anchor': wide ? 'end' : 'start' }, text.length > 21 ? `${text.slice(0, 20)}…` : text));
    const top = row * lane + (wide ? 5 : 17);
    const drawn = new Map();
    for (const e of events) {
      if (e[1] !== k) continue;
      const from = x(e[0] - e[3]), width = Math.max(1.6, x(e[0]) - from);
      const key = `${Math.round(from)} ${Math.round(width)} ${e[2]}`;  // marks that would lie on each other
      drawn.set(key, (drawn.get(key) || 0) + 1);
      if (drawn.get(key) === 1) svg.append(sv('rect', { class: e[2], x: from.toFixed(1), y: top, width: width.toFixed(1), height: 15, rx: 1.5, opacity: 0.72 }, sv('title', {}, `${text}: ${e[2]} in ${seconds(e[3])}${e[5] ? `, input ${e[5]}` : ''}${isNumber(e[6]) ? ` at ${show(e[6])}` : ''}`)));
    }
  });
  return svg;
}
