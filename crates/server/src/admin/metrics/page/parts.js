'use strict';
// What the page is made of: elements, numbers as text, tables and charts. Texts from clients are
// set by textContent alone.

const HISTORY_MS = 180000;
const PERIOD_MS = 1000;
const SVG = 'http://www.w3.org/2000/svg';

/** What charts draw: one point for each answer of the server. */
let points = [];

// Elements.

const byId = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Leaves alone what is right already: less to draw, and a selection stays. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A text from outside, with what cannot be seen or turns the order of letters made visible. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

// Numbers as text.

// `Intl` would do the same, but its formats take some 30 ms to make, and the first figures wait.

/** With groups of three digits. */
const whole = (value) => value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ',');

/** With a decimal, unless that is 0. */
function plain(value) {
  const [before, after] = value.toFixed(1).split('.');
  return after === '0' ? whole(Number(before)) : `${whole(Number(before))}.${after}`;
}

/** By its size: 1.2K, 35K, 1.2M. */
function compact(value) {
  const units = ['', 'K', 'M', 'B', 'T'];
  let unit = 0;
  // What would be rounded to the next unit has it already.
  while (value >= 999.95 && unit + 1 < units.length) {
    value /= 1000;
    unit += 1;
  }
  return `${plain(value)}${units[unit]}`;
}

function count(value) {
  if (!Number.isFinite(value)) return '–';
  if (value >= 100000) return compact(value);
  return (value < 10 ? plain : whole)(value);
}

function bytes(value) {
  if (!Number.isFinite(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${(unit === 0 || value >= 100 ? whole : plain)(value)} ${units[unit]}`;
}

const bytesPerSecond = (value) => `${bytes(value)}/s`;

function micros(us) {
  if (!Number.isFinite(us)) return '–';
  if (us < 1000) return `${(us < 10 ? plain : whole)(us)} µs`;
  if (us < 1e6) return `${(us < 1e4 ? plain : whole)(us / 1000)} ms`;
  return `${plain(us / 1e6)} s`;
}

function percent(share) {
  return Number.isFinite(share) ? `${(share < 0.1 ? plain : whole)(share * 100)} %` : '–';
}

function seconds(value) {
  if (!Number.isFinite(value) || value < 0) return '–';
  if (value < 120) return `${whole(value)} s`;
  if (value < 7200) return `${whole(value / 60)} min`;
  if (value < 172800) return `${whole(value / 3600)} h`;
  return `${whole(value / 86400)} days`;
}

const twoDigits = (number) => String(number).padStart(2, '0');

const clock = (ms) => {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(':');
};

/** A moment, with its date if that is not today's. */
function moment(ms) {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map(twoDigits).join('-');
  return isToday ? clock(ms) : `${day} ${clock(ms)}`;
}

/** The pairs of `a=1,b=2`. */
function pairs(text) {
  return Object.fromEntries((text || '').split(',').map((pair) => {
    const at = pair.indexOf('=');
    return [pair.slice(0, at), pair.slice(at + 1)];
  }));
}

/** The fields of INFO whose names are a beginning and a number. */
function numbered(info, beginning) {
  return Object.entries(info)
    .filter(([name]) => name.startsWith(beginning) && /^\d+$/.test(name.slice(beginning.length)))
    .map(([name, value]) => [name, pairs(value)]);
}

// Tables.

let tables = 0;

/** A table whose rows are set again and again. A column is [title, classes]. */
function table(place, columns) {
  tables += 1;
  const region = make('div', 'scroll');
  const caption = make('caption');
  const title = make('span');
  caption.id = `caption-${tables}`;
  region.tabIndex = 0;
  region.setAttribute('role', 'region');
  region.setAttribute('aria-labelledby', caption.id);
  const grid = make('table');
  const head = make('tr');
  for (const [name, classes] of columns) {
    const cell = make('th', classes.replace('given', ''), name);
    cell.scope = 'col';
    head.append(cell);
  }
  const top = make('thead');
  const body = make('tbody');
  top.append(head);
  caption.append(title);
  grid.append(caption, top, body);
  region.append(grid);
  byId(place).append(region);
  return (text, rows) => {
    say(title, text);
    top.hidden = rows.length === 0;
    while (body.rows.length > rows.length) body.lastChild.remove();
    while (body.rows.length < rows.length) body.append(makeRow(columns));
    rows.forEach((row, at) => row.forEach((value, column) => {
      setCell(body.rows[at].cells[column], value, columns[column][1]);
    }));
  };
}

function makeRow(columns) {
  const row = make('tr');
  columns.forEach(([, classes], at) => {
    const cell = make(at === 0 ? 'th' : 'td', classes);
    if (at === 0) cell.scope = 'row';
    row.append(cell);
  });
  return row;
}

function setCell(cell, value, classes) {
  if (!classes.includes('meter')) {
    say(cell, classes.includes('given') ? visible(String(value)) : String(value));
    return;
  }
  if (!cell.firstChild) {
    // The number beside it says the same.
    const bar = make('meter');
    bar.setAttribute('aria-hidden', 'true');
    cell.append(bar, make('span'));
  }
  cell.firstChild.value = Number.isFinite(value) ? Math.min(value, 1) : 0;
  say(cell.lastChild, percent(value));
}

/** Pairs of a name and a text in a list of them. */
function facts(list, entries) {
  while (list.children.length > entries.length) list.lastChild.remove();
  while (list.children.length < entries.length) {
    const group = make('div');
    group.append(make('dt'), make('dd'));
    list.append(group);
  }
  entries.forEach(([name, value, note], at) => {
    const group = list.children[at];
    say(group.children[0], name);
    say(group.children[1], visible(String(value)));
    if (note !== undefined) {
      if (!group.children[2]) group.append(make('dd', 'note'));
      say(group.children[2], note);
    }
  });
}

// Charts of lines.

/** A chart of some fields of the points. A series is [name, field]. */
function chart(place, title, series, format) {
  const figure = make('figure', 'chart');
  const heading = make('h3', '', title);
  heading.id = `${place}-${series[0][1]}`;
  const plot = make('div', 'plot');
  const drawing = makeSvg('svg', {
    viewBox: '0 0 1000 100', preserveAspectRatio: 'none', role: 'img',
    'aria-labelledby': heading.id, 'aria-describedby': `${heading.id}-text`,
  });
  const [top, from, to] = ['top', 'from', 'to'].map((name) => make('span', name));
  for (const label of [top, from, to]) label.setAttribute('aria-hidden', 'true');
  from.textContent = '3 minutes ago';
  to.textContent = 'now';
  plot.append(drawing, top, from, to);
  const text = make('figcaption');
  text.id = `${heading.id}-text`;
  figure.append(heading, plot);
  if (series.length > 1) figure.append(legend(series));
  figure.append(text);
  byId(place).append(figure);
  return () => {
    const values = (field) => points.map((point) => point[field]).filter(Number.isFinite);
    const highest = Math.max(0, ...series.flatMap(([, field]) => values(field)));
    say(top, format(highest));
    const lines = series.flatMap(([, field], number) => lineOf(field, number, highest || 1));
    drawing.replaceChildren(...lines);
    say(text, series.map(([name, field]) => {
      const all = values(field);
      if (all.length === 0) return `${name}: no figure yet.`;
      const [low, high] = [Math.min(...all), Math.max(...all)].map(format);
      return `${name}: now ${format(all[all.length - 1])}, between ${low} and ${high}.`;
    }).join(' '));
  };
}

function legend(series) {
  const list = make('ul', 'legend');
  series.forEach(([name], number) => {
    const entry = make('li');
    const sample = makeSvg('svg', { viewBox: '0 0 32 10', 'aria-hidden': 'true' });
    sample.append(makeSvg('polyline', { class: `series-${number}`, points: '0,5 32,5' }));
    entry.append(sample, name);
    list.append(entry);
  });
  return list;
}

/** The lines of a series: a new one behind each gap. */
function lineOf(field, number, highest) {
  const now = points.length > 0 ? points[points.length - 1].time : 0;
  const lines = [];
  let last = 0;
  for (const point of points) {
    if (!Number.isFinite(point[field])) continue;
    if (lines.length === 0 || point.time - last > 5 * PERIOD_MS) lines.push([]);
    last = point.time;
    const x = 1000 * (1 - (now - point.time) / HISTORY_MS);
    const y = 97 - 94 * point[field] / highest;
    lines[lines.length - 1].push(`${x.toFixed(1)},${y.toFixed(2)}`);
  }
  return lines.map((line) => makeSvg('polyline', {
    class: `series-${number}`, points: line.join(' '),
  }));
}
