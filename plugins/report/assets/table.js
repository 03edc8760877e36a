// The table of inputs: sorted and filtered in memory, a few rows in the page at a time.
const PAGE = 25;
const PAPER = 400;  // rows on paper, some ten sheets; a count says how many there are
const STATUS = { proved: '✓ proved', closed: '✓ closed', refuted: '✕ refuted', open: '? open', misclassified: '✕ misclassified', error: '! error' };
const LOOKS = { closed: 'proved' };

function compareValues(a, b) {
  const blank = (v) => v === null || v === undefined || v === '';
  if (blank(a) || blank(b)) return blank(a) - blank(b);
  const x = Number(a), y = Number(b);
  if (Number.isFinite(x) && Number.isFinite(y)) return x - y;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

// The two sides of a critical radius as a bar: solid up to what is proved, light up to the counterexample.
function bracketBar(r, top, colour) {
  const [low, high] = [r[COLUMN.lower], r[COLUMN.upper]];
  if (!isNumber(low)) return '–';
  const x = (v) => (100 * Math.min(v, top)) / top;
  const text = `proved up to ${show(low)}, ${isNumber(high) ? `refuted at ${show(high)}` : 'no counterexample known'}`;
  const svg = sv('svg', { viewBox: '0 0 100 14', preserveAspectRatio: 'none', role: 'img', 'aria-label': text }, sv('title', {}, text));
  svg.append(sv('rect', { x: 0, y: 5, width: 100, height: 4, fill: 'var(--line)', rx: 1 }), sv('rect', { x: 0, y: 3, width: x(low), height: 8, fill: colour, rx: 1 }));
  svg.append(sv('rect', { x: x(low), y: 3, width: Math.max(isNumber(high) ? 0.6 : 0, x(isNumber(high) ? high : top) - x(low)), height: 8, fill: colour, opacity: 0.3 }));
  if (isNumber(high)) svg.append(sv('rect', { x: Math.min(99, x(high)), y: 0, width: 1, height: 14, fill: 'var(--refuted)' }));
  return svg;
}

function columnsOf(chapter, networks, top) {
  const has = (name) => chapter.results.some((r) => r[COLUMN[name]] !== null && r[COLUMN[name]] !== '');
  const several = new Set(chapter.results.map((r) => r[COLUMN.data])).size > 1;
  const text = (name) => ({ name, key: COLUMN[name], cell: (r) => show(r[COLUMN[name]]) });
  const number = (name, title) => ({ ...text(name), title, number: true, cell: (r) => show(r[COLUMN[name]]) });
  const list = [
    { name: 'network', key: COLUMN.network, cell: (r) => [swatch(networks[r[COLUMN.network]].colour), networks[r[COLUMN.network]].short] },
    (several || !chapter.brackets) && has('data') && { name: 'data', key: COLUMN.data, cell: (r) => show(r[COLUMN.data]) },
    { name: 'input', key: COLUMN.index, cell: (r) => show(r[COLUMN.index]) },
    has('label') && { name: 'label', key: COLUMN.label, cell: (r) => (r[COLUMN.predicted] && r[COLUMN.predicted] !== r[COLUMN.label] ? `${show(r[COLUMN.label])}, taken for ${r[COLUMN.predicted]}` : show(r[COLUMN.label])) },
    has('epsilon') && number('epsilon', 'radius'),
    { name: 'status', key: COLUMN.status, cell: (r) => el('span', { class: `badge ${LOOKS[r[COLUMN.status]] || r[COLUMN.status]}`, title: r[COLUMN.reason] || null }, STATUS[r[COLUMN.status]] || r[COLUMN.status]) },
    chapter.brackets && { name: 'bracket', key: COLUMN.lower, style: 'bracket', cell: (r) => bracketBar(r, top, networks[r[COLUMN.network]].colour) },
    chapter.brackets && number('lower', 'proved'),
    chapter.brackets && number('upper', 'refuted'),
    has('verifier') && { ...text('verifier'), title: 'by' },
    { name: 'seconds', key: COLUMN.seconds, number: true, cell: (r) => (r[COLUMN.reused] ? `${show(r[COLUMN.seconds], 3)} (reused)` : show(r[COLUMN.seconds], 3)) },
    has('flags') && { ...text('flags'), cell: (r) => r[COLUMN.flags] },
    has('example') && { name: '', key: null, cell: () => '' },
  ];
  return list.filter(Boolean);
}

function resultsTable(chapter, networks, hidden, openExample) {
  const top = chapter.results.reduce((m, r) => Math.max(m, isNumber(r[COLUMN.upper]) ? r[COLUMN.upper] : 0, isNumber(r[COLUMN.lower]) ? r[COLUMN.lower] : 0), 0) || 1;
  const columns = columnsOf(chapter, networks, top);
  const state = { sort: null, down: false, text: '', status: '', shown: PAGE };
  const words = chapter.results.map((r) => [networks[r[COLUMN.network]].name, r[COLUMN.data], r[COLUMN.index], r[COLUMN.status], r[COLUMN.label], r[COLUMN.verifier], r[COLUMN.flags], r[COLUMN.reason]].join(' ').toLowerCase());
  const body = el('tbody'), seen = el('span', { class: 'seen', role: 'status' });
  const more = el('button', { type: 'button', class: 'act more-rows', onclick: () => { state.shown += 8 * PAGE; draw(); } }, 'Show more');

  function chosen() {
    const wanted = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    let found = chapter.results.map((r, k) => [r, k]).filter(([r, k]) => !hidden.has(r[COLUMN.network]) && (!state.status || r[COLUMN.status] === state.status) && wanted.every((w) => words[k].includes(w)));
    if (state.sort !== null) {
      const key = columns[state.sort].key, sign = state.down ? -1 : 1;
      const blank = (v) => v === null || v === '';
      found.sort(([a, i], [b, j]) => (blank(a[key]) || blank(b[key]) ? compareValues(a[key], b[key]) : sign * compareValues(a[key], b[key])) || i - j);
    }
    return found;
  }
  function draw() {
    const found = chosen();
    body.replaceChildren(...found.slice(0, state.shown).map(([r]) => {
      const open = r[COLUMN.example] !== null ? () => openExample(r[COLUMN.example]) : null;
      const cells = columns.map((c) => el('td', { class: [c.number && 'number', c.style].filter(Boolean).join(' ') || null }, c.cell(r)));
      if (open) cells[cells.length - 1].append(el('button', { type: 'button', class: 'act', 'aria-label': `counterexample of input ${r[COLUMN.index]}`, onclick: (e) => { e.stopPropagation(); open(); } }, 'see'));
      return el('tr', { class: open ? 'more' : null, onclick: open }, cells);
    }));
    seen.textContent = `${Math.min(found.length, state.shown)} of ${found.length} shown${found.length < chapter.results.length ? `, ${chapter.results.length} in all` : ''}`;
    more.hidden = found.length <= state.shown;
  }
  const heads = columns.map((c, k) => c.key === null ? el('th', {}) : el('th', { scope: 'col', class: [c.number && 'number', c.style].filter(Boolean).join(' ') || null, 'aria-sort': 'none' }, el('button', { type: 'button', onclick: () => {
    state.down = state.sort === k ? !state.down : false;
    state.sort = k;
    heads.forEach((h, j) => columns[j].key !== null && h.setAttribute('aria-sort', j === k ? (state.down ? 'descending' : 'ascending') : 'none'));
    draw();
  } }, c.title || c.name)));
  const statuses = [...new Set(chapter.results.map((r) => r[COLUMN.status]))];
  const controls = el('div', { class: 'controls' },
    el('input', { type: 'search', placeholder: 'Filter: network, input, verifier …', 'aria-label': 'Filter inputs', oninput: (e) => { state.text = e.target.value; state.shown = PAGE; draw(); } }),
    statuses.length > 1 && el('select', { 'aria-label': 'Status', onchange: (e) => { state.status = e.target.value; state.shown = PAGE; draw(); } }, el('option', { value: '' }, 'every status'), statuses.map((s) => el('option', { value: s }, s))),
    seen);
  draw();
  return { node: el('div', {}, controls, el('div', { class: 'scroll' }, el('table', { class: 'results' }, el('thead', {}, el('tr', {}, heads)), body)), more), draw, paper: () => { state.shown = Math.max(state.shown, PAPER); draw(); } };
}
