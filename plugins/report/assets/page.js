// The page from its content: the answer first, then what it rests on.
let content = JSON.parse(document.getElementById('content').textContent);
const page = document.getElementById('page');
const source = document.body.dataset.source;
const hidden = new Set();  // networks that the reader has put aside
const redraw = [];  // what depends on the width of the window or on the networks that are shown
const onPaper = [];  // what shows more on paper than in a window
const GALLERY = 8;

function section(title, note, ...children) {
  return el('section', {}, el('h2', {}, title), note && el('p', { class: 'note' }, note), ...children);
}

function image(src, text) {
  return src ? el('img', { class: 'pixels', src, alt: text, title: text }) : el('div', { class: 'missing' }, `${text}: no picture`);
}

function changesTable(e, most) {
  const known = e.changes.some((c) => c[1] !== null);
  const rows = e.changes.slice(0, most).map(([name, before, after]) => el('tr', {}, el('td', {}, name), known && el('td', { class: 'number' }, show(before)), el('td', { class: 'number' }, show(after)),
    known && el('td', { class: 'number' }, isNumber(before) && isNumber(after) ? `${after > before ? '+' : ''}${show(after - before, 3)}` : '–')));
  return el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'value'), known && el('th', { class: 'number' }, 'input'), el('th', { class: 'number' }, known ? 'becomes' : 'counterexample'), known && el('th', { class: 'number' }, 'change'))), el('tbody', {}, rows));
}

function turnOf(e) {
  if (e.label === '' && e.becomes === '') return `input ${show(e.index)}`;
  return e.becomes === '' ? `label ${e.label}` : `${e.label} becomes ${e.becomes}`;
}
function distanceOf(e) {
  if (isNumber(e.distance)) return `distance ${show(e.distance, 3)}`;
  return isNumber(e.epsilon) ? `within ${show(e.epsilon, 3)}` : '';
}

function exampleCard(e, open) {
  const network = content.networks[e.network];
  const pictures = e.picture ? el('div', { class: 'pictures' }, image(e.near, 'input'), image(e.picture, 'counterexample'), image(e.difference, 'difference')) : changesTable(e, 4);
  return el('button', { type: 'button', class: 'example', onclick: open }, pictures, el('div', { class: 'turn' }, turnOf(e)),
    el('div', { class: 'small' }, swatch(network.colour), [network.short, `input ${show(e.index)}`, distanceOf(e), e.verifier && `by ${e.verifier}`].filter(Boolean).join(' · ')));
}

const dialog = el('dialog', { 'aria-label': 'Counterexample', onclick: (e) => { if (e.target === dialog) dialog.close(); } });
function openExample(e) {
  const network = content.networks[e.network];
  const facts = [['network', network.name], ['data', e.data], ['input', e.index], ['label', e.label], ['becomes', e.becomes], ['distance', show(e.distance, 6)], ['radius', e.epsilon === null ? '' : show(e.epsilon)], ['values changed', e.changed || ''], ['found by', e.verifier]];
  const outputs = e.outputs.length > 0 && el('details', { open: true }, el('summary', {}, 'Outputs at the counterexample'), el('div', { class: 'scroll' }, el('table', {}, el('tbody', {}, e.outputs.map((v, k) => el('tr', {}, el('td', {}, `output ${k}${String(k) === e.label ? ' (label)' : ''}`), el('td', { class: 'number' }, show(v))))))));
  dialog.replaceChildren(el('div', { class: 'inside' }, el('div', { class: 'bar' }, el('h3', {}, swatch(network.colour), turnOf(e)), el('button', { type: 'button', class: 'act', onclick: () => dialog.close() }, 'Close')),
    e.picture ? el('div', { class: 'pictures' }, [['input', e.near], ['counterexample', e.picture], ['difference', e.difference]].map(([text, src]) => el('figure', {}, image(src, text), el('figcaption', {}, text === 'difference' ? 'difference: blue less, red more' : text)))) : el('p', { class: 'note' }, 'No pictures: the input is no image, was not kept, or there are too many.'),
    el('div', { class: 'columns' }, el('dl', { class: 'facts' }, facts.filter(([, v]) => v !== '' && v !== null && v !== '–').flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)])),
      e.changes.length > 0 && el('div', {}, el('h3', {}, e.changes.some((c) => c[1] !== null) ? 'Largest changes' : 'Values'), el('div', { class: 'scroll' }, changesTable(e, 12)))), outputs));
  if (!dialog.open) dialog.showModal();
}

function curveSection(chapter) {
  const radii = new Set(chapter.results.map((r) => r[COLUMN.epsilon]).filter(isNumber));
  const about = chapter.brackets || radii.size > 0;
  const holder = el('div', { class: 'chart' });
  const draw = () => {
    const w = Math.max(300, Math.round(holder.clientWidth || 700));
    const chart = about ? drawCurve(chapter, content.networks, hidden, w) : drawDecided(chapter, content.networks, hidden, w);
    holder.replaceChildren(chart.svg);
    if (about) follow(holder, chart);
  };
  redraw.push(draw);
  const used = [...new Set(chapter.results.map((r) => r[COLUMN.network]))];
  const legend = el('ul', { class: 'legend' }, used.map((k) => el('li', {}, el('button', { type: 'button', 'aria-pressed': String(!hidden.has(k)), onclick: (e) => {
    if (hidden.has(k)) hidden.delete(k); else hidden.add(k);
    e.currentTarget.setAttribute('aria-pressed', String(!hidden.has(k)));
    redraw.forEach((f) => f());
  } }, swatch(content.networks[k].colour), content.networks[k].short))));
  const note = about ? 'The line is the share of inputs that are proved robust at a radius; the band above it is neither proved nor refuted. Misclassified inputs are robust at no radius.' + (chapter.comparisons.length ? ' Dotted: the radii at which networks are compared below.' : '') : 'How many questions were decided within a time; reused answers are left out.';
  return section(about ? 'Robust inputs by radius' : 'Decided within a time', note, legend, holder);
}

function gallerySection(chapter) {
  if (!chapter.examples.length) return null;
  const holder = el('div', { class: 'gallery' });
  const more = el('button', { type: 'button', class: 'act' });
  let most = GALLERY;
  const draw = () => {
    const found = chapter.examples.filter((e) => !hidden.has(e.network));
    const order = content.live ? [...found].sort((a, b) => b.when - a.when) : inTurn(found);
    holder.replaceChildren(...order.slice(0, most).map((e) => exampleCard(e, () => openExample(e))));
    more.textContent = `Show ${Math.min(found.length - most, 5 * GALLERY)} more of ${found.length}`;
    more.hidden = found.length <= most;
  };
  more.addEventListener('click', () => { most += 5 * GALLERY; draw(); });
  redraw.push(draw);
  return section('Counterexamples', content.live ? 'The newest first. Each was replayed on the network.' : 'Inputs that the property does not hold for, the closest first, each replayed on the network. Blue values became smaller, red ones larger.', holder, el('p', {}, more));
}

// The closest of each network in turn, so that every network is seen.
function inTurn(examples) {
  const lanes = new Map();
  for (const e of [...examples].sort((a, b) => compareValues(a.distance, b.distance))) lanes.set(e.network, [...(lanes.get(e.network) || []), e]);
  const found = [];
  for (let k = 0; found.length < examples.length; k += 1) for (const lane of lanes.values()) if (k < lane.length) found.push(lane[k]);
  return found;
}

function comparisonSection(chapter) {
  if (!chapter.comparisons.length) return null;
  const name = (k) => [swatch(content.networks[k].colour), content.networks[k].short];
  const duels = chapter.comparisons.map((c) => {
    const [better, worse, open, equal] = c.counts, all = Math.max(1, better + worse + open + equal);
    const text = `more robust: ${content.networks[c.first].short} on ${better}, ${content.networks[c.second].short} on ${worse}, undecided ${open}, equal ${equal}`;
    const part = (from, n, colour) => sv('rect', { x: (100 * from) / all, y: 0, width: (100 * n) / all, height: 18, fill: colour });
    const bar = sv('svg', { viewBox: '0 0 100 18', preserveAspectRatio: 'none', role: 'img', 'aria-label': text }, sv('title', {}, text), sv('rect', { x: 0, y: 0, width: 100, height: 18, fill: 'var(--line)' }), part(0, better, content.networks[c.first].colour), part(all - worse, worse, content.networks[c.second].colour));
    return el('div', { class: 'duel' }, el('span', {}, name(c.first), ' ', el('b', {}, better)), bar, el('span', {}, el('b', {}, worse), ' ', name(c.second)), el('span', { class: 'small' }, `${open} undecided, ${equal} equal`));
  });
  const rows = chapter.comparisons.flatMap((c) => c.at.map(([radius, a, b, verdict]) => el('tr', {}, el('td', { class: 'number' }, show(radius)), el('td', {}, name(c.first)), el('td', { class: 'number' }, span(a[0] / a[2], a[1] / a[2])), el('td', {}, name(c.second)), el('td', { class: 'number' }, span(b[0] / b[2], b[1] / b[2])), el('td', {}, { first: name(c.first), second: name(c.second), equal: 'equal', open: el('span', { class: 'open' }, 'undecided') }[verdict]))));
  const table = rows.length > 0 && el('details', {}, el('summary', {}, 'Shares of robust inputs at single radii'), el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, ['radius', 'network', 'robust', 'network', 'robust', 'more robust'].map((t, k) => el('th', { class: [0, 2, 4].includes(k) ? 'number' : null }, t)))), el('tbody', {}, rows))));
  return section('Which network is more robust', 'On how many inputs one of two networks has the larger critical radius for sure. A comparison is decided where the two intervals do not meet; it is about these inputs, not about others.', duels, table);
}

function timelineSection(chapter) {
  const holder = el('div', { class: 'chart' });
  const draw = () => { const svg = drawTimeline(chapter, Math.max(300, Math.round(holder.clientWidth || 700))); holder.replaceChildren(...(svg ? [svg] : [])); };
  const rows = chapter.verifiers.map((verifier, k) => {
    const mine = chapter.events.filter((e) => e[1] === k), fresh = mine.filter((e) => !e[7]);
    const count = (v) => mine.filter((e) => e[2] === v).length, times = fresh.map((e) => e[3]).sort((a, b) => a - b);
    return [verifier || 'nobody', count('unsat'), count('sat'), mine.length - count('unsat') - count('sat'), times.length ? times[Math.floor(times.length / 2)] : null, times.reduce((a, b) => a + b, 0)];
  }).filter((r) => r[1] + r[2] + r[3]);
  if (!rows.length) return null;
  redraw.push(draw);
  const key = el('p', { class: 'note' }, el('b', { class: 'proved' }, '■ proved '), el('b', { class: 'refuted' }, '■ counterexample '), el('b', { class: 'open' }, '■ undecided'));
  return section('Who decided what, and when', 'Every answer on the way; times of reused answers are left out.', key, holder, el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, ['verifier', 'proved', 'counterexamples', 'undecided', 'median time', 'time in all'].map((t, k) => el('th', { class: k ? 'number' : null }, t)))), el('tbody', {}, rows.map((r) => el('tr', {}, r.map((v, k) => el('td', { class: k ? 'number' : null }, k < 4 ? v : v === null ? '–' : seconds(v)))))))));
}

function detailSections(chapter) {
  const tables = chapter.tables.map((t) => el('details', {}, el('summary', {}, t.title), el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, t.columns.map((c, k) => el('th', { class: k ? 'number' : null }, c)))), el('tbody', {}, t.rows.map((r) => el('tr', {}, r.map((v, k) => el('td', { class: k ? 'number' : null }, v))))))), el('p', { class: 'note' }, 'The same as ', el('a', { href: `${encodeURIComponent(t.name)}.csv` }, `${t.name}.csv`))));
  const figures = chapter.pictures.length > 0 && el('details', {}, el('summary', {}, plural(chapter.pictures.length, 'figure', 'figures')), el('div', { class: 'figures' }, chapter.pictures.map((p) => el('figure', {}, p.src ? el('img', { src: p.src, alt: p.caption, loading: 'lazy' }) : el('div', { class: 'missing' }, `missing: ${p.missing}`), el('figcaption', {}, p.caption, ' ', p.files.flatMap((f) => [el('a', { href: encodeURIComponent(f) }, f.split('.').pop()), ' ']))))));
  if (!tables.length && !figures) return null;
  return section('Details', '', tables, figures);
}

function provenanceSection(chapter) {
  const hashes = content.networks.filter((n) => n.sha256).map((n) => [n.name, `sha256 ${n.sha256}`]);
  return section('Where this comes from', '', el('details', { open: true }, el('summary', {}, 'Command, data, versions, hashes'), el('dl', { class: 'facts' }, [...chapter.provenance, ...hashes].flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, k === 'command' || v.startsWith('sha256') ? el('code', {}, v) : v)]))));
}

function livePanel(live) {
  if (!live) return null;
  const now = live.now, rest = isNumber(live.left) ? `, about ${seconds(live.left)} left` : '';
  const done = live.total ? `${live.done} of ${live.total} done${rest}` : 'working';
  const state = live.alive ? `Running for ${seconds(now - live.started)}: ${done}` : live.ended ? `Ended at ${clockTime(live.ended)}` : 'No run is working on this store now';
  const work = live.work.map((w) => el('tr', {}, el('td', {}, w.verifier || 'a worker'), el('td', {}, w.about), el('td', { class: 'number' }, seconds(Math.max(0, now - w.since)))));
  const memory = live.processes.reduce((sum, p) => sum + p.memory, 0);
  return el('div', { class: `live${live.alive ? ' on' : ''}` }, el('div', { class: 'state' }, el('span', { class: 'dot' }), state), live.total > 0 && el('progress', { max: live.total, value: live.done, 'aria-label': 'done' }),
    work.length > 0 && el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'at work'), el('th', {}, 'on'), el('th', { class: 'number' }, 'for'))), el('tbody', {}, work))),
    live.processes.length > 0 && el('p', { class: 'note' }, `${plural(live.processes.length, 'process', 'processes')} on ${live.host}, ${bytes(memory)} of memory: ${live.processes.map((p) => bytes(p.memory)).join(', ')}`),
    live.line && [el('p', { class: 'note' }, live.alive ? 'If it is stopped, this continues it:' : 'This continues it:'), el('div', { class: 'command' }, el('code', {}, `cd ${live.folder} && ${live.line}`), el('button', { type: 'button', onclick: (e) => { navigator.clipboard.writeText(`cd ${live.folder} && ${live.line}`); e.currentTarget.textContent = 'Copied'; } }, 'Copy'))]);
}

function build() {
  redraw.length = 0;
  onPaper.length = 0;
  const first = content.chapters[0];
  const head = el('header', {}, el('div', { class: 'above' }, el('b', {}, 'verifolio'), el('span', {}, content.made), content.chapters.length > 1 && el('span', {}, plural(content.chapters.length, 'run', 'runs'))),
    content.alarms.length > 0 && el('div', { class: 'alarm', role: 'alert' }, el('b', {}, plural(content.alarms.length, 'soundness alarm', 'soundness alarms')), content.alarms.map((a) => el('div', {}, a))), livePanel(content.live), el('h1', {}, first ? solid(first.answer) : 'No results yet.'));
  const chapters = content.chapters.map((chapter, k) => el('article', {}, k > 0 && el('h1', {}, solid(chapter.answer)),
    el('div', { class: 'cards' }, chapter.cards.map(([what, count, hint]) => el('div', { class: `card ${what}` }, el('div', { class: 'count' }, count), el('div', { class: 'what' }, what), el('div', { class: 'hint' }, hint)))),
    curveSection(chapter), gallerySection(chapter), comparisonSection(chapter), inputsSection(chapter), timelineSection(chapter), detailSections(chapter), provenanceSection(chapter)));
  page.replaceChildren(head, ...chapters, el('footer', {}, 'Made by verifolio. A proof is the word of the verifier that found it and a second look; a counterexample was replayed by ONNX Runtime.'), dialog);
  redraw.forEach((f) => f());
}

function inputsSection(chapter) {
  const made = resultsTable(chapter, content.networks, hidden, (k) => openExample(chapter.examples[k]));
  redraw.push(made.draw);
  onPaper.push(made.paper);
  return section(chapter.brackets ? 'Every input' : 'Every question', chapter.brackets ? 'The bar is solid up to the radius that is proved and light up to the closest counterexample, which the red mark shows.' : '', made.node);
}

let width = 0;
function resized() {
  if (Math.abs(window.innerWidth - width) < 2) return;
  width = window.innerWidth;
  redraw.forEach((f) => f());
}
window.addEventListener('resize', resized);
window.addEventListener('beforeprint', () => { onPaper.forEach((f) => f()); document.querySelectorAll('details').forEach((d) => { d.open = true; }); });

// The live view asks for news; the reader's place, sorting and open dialog stay as long as nothing is new.
let known = '';
async function poll() {
  try {
    const answer = await fetch(`${source}&known=${known}`, { cache: 'no-store' });
    if (answer.status === 200) {
      known = answer.headers.get('ETag') || '';
      const news = await answer.json();
      const place = window.scrollY, busy = dialog.open || document.activeElement instanceof HTMLInputElement;
      const same = JSON.stringify(news.chapters) === JSON.stringify(content.chapters);
      content = { ...news };
      if (same || busy) { const old = page.querySelector('.live'), fresh = livePanel(content.live); if (old && fresh) old.replaceWith(fresh); } else { build(); window.scrollTo(0, place); }
    }
  } catch (error) {
    const state = page.querySelector('.live .state');
    if (state) state.textContent = 'The view has ended; the run goes on.';
  }
  setTimeout(poll, 2000);
}

width = window.innerWidth;
build();
if (source) poll();
