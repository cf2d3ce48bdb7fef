// What a page does beside being read: time series, hovering, keys, folded parts. Everything else is markup.
'use strict';
(async () => {
  const root = document.documentElement;
  const colour = name => getComputedStyle(root).getPropertyValue(name).trim();
  root.dataset.errors = '0';
  addEventListener('error', event => { root.dataset.errors = +root.dataset.errors + 1; root.dataset.error = event.message; });
  addEventListener('unhandledrejection', event => { root.dataset.errors = +root.dataset.errors + 1; root.dataset.error = event.reason; });

  // Numbers with their units.
  const prefixes = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
  const symbols = { bits_per_second: 'b/s', per_second: '/s', bytes: 'B', percent: '%', seconds: 's', ghz: 'GHz', watts: 'W', cycles_per_kbyte: 'cycles/KByte' };
  const digits = value => {
    const size = Math.abs(value);
    return size >= 99.95 || size === 0 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : size >= 0.9995 ? value.toFixed(2) : value.toFixed(3);
  };
  function show(unit, value, plain = digits) {
    if (value == null) return '–';
    const size = Math.abs(value);
    if (size === 0 && unit === 'microseconds') return '0 s';
    if (unit === 'microseconds') return size >= 1e6 ? plain(value / 1e6) + ' s' : size >= 1e3 ? plain(value / 1e3) + ' ms' : plain(value) + ' us';
    const [divisor, prefix] = ['bits_per_second', 'per_second', 'bytes'].includes(unit) && prefixes.find(([least]) => size >= least) || [1, ''];
    const symbol = prefix + (symbols[unit] || '');
    return (plain(value / divisor) + (symbol && symbol !== '%' ? ' ' : '') + symbol).trim();
  }
  const tick = unit => (_, values) => values.map(value => show(unit, value, of => String(+of.toPrecision(6))));

  // What is in the page deflated, in base64.
  async function inflated(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), letter => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // Drawings beyond the first.
  const places = document.querySelectorAll('[data-packed]');
  if (places.length) {
    try {
      const drawings = JSON.parse(new TextDecoder().decode(await inflated('drawings')));
      for (const place of places) place.innerHTML = drawings[place.dataset.packed];
    } catch (error) {
      root.dataset.errors = +root.dataset.errors + 1;
      root.dataset.error = error;
      for (const place of places) place.textContent = 'This browser cannot draw this chart. The table has its figures.';
    }
  }

  // Series over time: columns of numbers, byte by byte, deflated.
  async function columns(described) {
    const bytes = await inflated('columns');
    let from = 0;
    return described.map(({ width, length }) => {
      const values = new Uint8Array(width * length);
      for (let byte = 0; byte < width; byte++)
        for (let value = 0; value < length; value++) values[value * width + byte] = bytes[from + byte * length + value];
      from += width * length;
      return width === 8 ? new Float64Array(values.buffer) : new Float32Array(values.buffer);
    });
  }

  // A row without values where nothing was sampled for longer than usual: the line is not drawn through it.
  function broken(columns) {
    const [xs] = columns, steps = xs.slice(1).map((x, row) => x - xs[row]).sort((a, b) => a - b);
    const longest = 1.5 * steps[steps.length >> 1];
    const rows = columns.map(() => []);
    xs.forEach((x, row) => {
      if (row && x - xs[row - 1] > longest) rows.forEach((out, column) => out.push(column ? null : (x + xs[row - 1]) / 2));
      rows.forEach((out, column) => out.push(columns[column][row]));
    });
    return rows;
  }

  // Keys zoom around a place, move what is shown along, and show all again; whether this was one of them.
  function zoomedByKey(event, [first, last], [low, high], place, show) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const times = { '+': 0.5, '=': 0.5, '-': 2, 0: Infinity }[event.key], width = high - low;
    const by = event.shiftKey && { ArrowLeft: -0.25, ArrowRight: 0.25 }[event.key];
    if (!times && !by) return false;
    event.preventDefault();
    const wider = width * (times || 1), wide = wider > 0.999 * (last - first) ? last - first : wider;
    const from = by ? low + by * width : low + (place - low) * (1 - wide / width);
    const begin = Math.min(Math.max(first, from), last - wide);
    // Nothing finer than what the drawing tells apart.
    const least = (last - first) / 2000;
    if (wide > least && (times || Math.abs(begin - low) > least * width / (last - first))) show(begin, wide < last - first ? begin + wide : last);
    return true;
  }

  // The rows that uPlot draws of a chart, and where those of each series are.
  function rows(chart, all) {
    const tables = [], series = [{}], bands = [];
    for (const line of chart.series) {
      const stroke = colour(line.colour ? '--c' + line.colour : '--idle');
      const look = { label: line.name, stroke, width: 1.5, dash: line.dashed ? [6, 4] : undefined, points: { show: all[line.x].length < 60, size: 4 }, spanGaps: false };
      const ys = [line.y, line.low, line.high].filter(column => column != null);
      tables.push(broken([line.x, ...ys].map(column => Array.from(all[column]))));
      series.push(look);
      if (ys.length === 3) {
        series.push({ ...look, label: line.name + ', least', width: 0 }, { ...look, label: line.name + ', most', width: 0 });
        bands.push({ series: [series.length - 1, series.length - 2], fill: stroke + '40' });
      }
    }
    return { values: tables.length === 1 ? tables[0] : uPlot.join(tables, tables.map(table => table.map(() => 1))), series, bands };
  }

  // The last of panels that stand below one another has the labels of their time.
  function draw(place, chart, all, below) {
    const { values, series, bands } = rows(chart, all);
    const figure = place.closest('figure'), whole = figure.querySelector('.whole'), readout = figure.querySelector('.readout');
    const axis = { stroke: colour('--muted'), grid: { stroke: colour('--rule'), width: 1 }, ticks: { stroke: colour('--rule'), width: 1 }, font: '12px system-ui, sans-serif' };
    const height = !chart.panel ? 260 : (chart.end ? 150 : 92) + (below ? 0 : 58);
    const size = () => ({ width: Math.max(240, place.clientWidth), height: place.closest('dialog') ? Math.max(height, innerHeight - 200) : height });
    // All charts begin with the window; a part that was selected has its own ends.
    const ends = values[0], zoomed = (low, high) => low > ends[0] || high < ends[ends.length - 1];
    const plot = new uPlot({
      ...size(), series, bands, legend: { show: false },
      scales: { x: { time: false, range: (_, low, high) => [zoomed(low, high) ? low : 0, high] }, y: { range: (_, low, high) => [Math.min(0, low), chart.end ?? (high > 0 ? high * 1.05 : 1)] } },
      axes: [
        { ...axis, space: 70, ...(below ? { values: () => [], size: 6 } : { values: tick(chart.x), label: chart.time, labelSize: 20, labelFont: axis.font }) },
        { ...axis, values: tick(chart.y), size: 76, space: chart.panel ? 20 : 30 },
      ],
      cursor: { drag: { x: true, y: false }, sync: chart.group ? { key: chart.group, setSeries: false } : undefined, points: { size: 6 } },
      hooks: { setScale: [(at, scale) => { if (scale === 'x') whole.hidden = !zoomed(at.scales.x.min, at.scales.x.max); }], setCursor: [at => {
        const row = at.cursor.idx;
        const told = row == null ? [] : at.series.slice(1).map((line, number) => line.show && at.data[number + 1][row] != null && line.label + ' ' + show(chart.y, at.data[number + 1][row])).filter(Boolean);
        readout.textContent = told.length ? show(chart.x, at.data[0][row]) + ': ' + told.join(', ') : '';
      }] },
    }, values, place);
    const together = () => chart.group ? uPlot.sync(chart.group).plots : [plot];
    const span = [0, ends[ends.length - 1]];
    whole.onclick = () => together().forEach(of => of.setData(of.data));
    figure.resized = () => plot.setSize(size());
    new ResizeObserver(figure.resized).observe(place);
    figure.onkeydown = event => {
      if (event.target !== figure) return;
      const { min, max } = plot.scales.x, at = plot.cursor.idx == null ? (min + max) / 2 : values[0][plot.cursor.idx];
      const show = (low, high) => low <= span[0] && high >= span[1] ? whole.onclick() : together().forEach(of => of.setScale('x', { min: low, max: high }));
      if (zoomedByKey(event, span, [min, max], Math.min(max, Math.max(min, at)), show)) return;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const row = Math.min(values[0].length - 1, Math.max(0, (plot.cursor.idx ?? (step > 0 ? -1 : values[0].length)) + step));
      plot.setCursor({ left: plot.valToPos(values[0][row], 'x'), top: 10 });
    };
    figure.toggle = (name, on) => series.forEach((line, number) => {
      if (number && (line.label === name || line.label.startsWith(name + ', '))) plot.setSeries(number, { show: on });
    });
    return plot;
  }

  async function drawAll() {
    const described = document.getElementById('series');
    if (!described) return;
    const { charts, columns: kinds } = JSON.parse(described.textContent);
    const all = await columns(kinds);
    // The content security policy allows this text by its hash.
    const uplot = document.createElement('script');
    uplot.textContent = new TextDecoder().decode(await inflated('uplot'));
    document.head.append(uplot);
    let plots = [];
    const again = () => {
      plots.forEach(plot => plot.destroy());
      plots = [...document.querySelectorAll('[data-series-chart]')].map(place => {
        const number = +place.dataset.seriesChart, chart = charts[number], next = charts[number + 1];
        return draw(place, chart, all, chart.panel && next?.panel && next.group === chart.group);
      });
    };
    again();
    // Canvases do not follow the theme by themselves.
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  }

  // Keys hide and show series.
  for (const button of document.querySelectorAll('[data-toggle]')) button.onclick = () => {
    const on = button.getAttribute('aria-pressed') === 'false';
    button.setAttribute('aria-pressed', on);
    const figure = button.closest('figure'), name = button.dataset.toggle;
    figure.toggle?.(name, on);
    for (const group of figure.querySelectorAll('svg [data-series]')) if (group.dataset.series === name) group.classList.toggle('off', !on);
    figure.redraw?.();
  };

  // Titles of marks beside the pointer, at once.
  const tip = document.body.appendChild(document.createElement('div'));
  tip.className = 'tip';
  tip.setAttribute('role', 'status');
  tip.hidden = true;
  const told = new Map();
  const element = (name, attributes, text = '') => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [of, value] of Object.entries(attributes)) made.setAttribute(of, value);
    made.textContent = text;
    return made;
  };
  // Every run of a curve as a dot that leads to it, under the means.
  for (const group of document.querySelectorAll('svg [data-runs]')) {
    const look = 'alone' in group.dataset ? { class: 'run', r: 6 } : { class: 'run beside', r: 3.5 };
    const dots = group.dataset.runs.split('\n').map(run => {
      const [cx, cy, figure, name, href = '#run-' + name] = run.split('\t'), dot = element('circle', { ...look, cx, cy });
      told.set(dot, `run ${name}: ${figure}`);
      if (!document.getElementById(href.slice(1))) return dot;
      // Lists of runs lead to them too.
      const link = element('a', { href, tabindex: -1 });
      link.append(dot);
      return link;
    });
    const line = group.querySelector('.line');
    line ? line.after(...dots) : group.prepend(...dots);
  }
  for (const title of document.querySelectorAll('svg title')) {
    told.set(title.parentNode, title.textContent);
    title.remove();
  }
  // Marks of brief drawings are told by their row and series, which stand there once.
  function whole(mark) {
    const text = told.get(mark), svg = mark.closest('svg.brief');
    if (!text || !svg) return text;
    const { y, height } = mark.getBBox();
    const row = mark.tagName === 'rect' && [...svg.querySelectorAll('.label')].find(label => Math.abs(label.getAttribute('y') - y - height / 2 - 4) < 0.2);
    const of = [row && (row.dataset.whole || row.textContent), mark.closest('[data-series]')?.dataset.series].filter(Boolean).join(', ');
    return of ? of + ': ' + text : text;
  }
  // Lines of very many samples have no marks: the nearest sample is shown.
  const spot = element('circle', { class: 'spot', r: 4 });
  const corners = path => path.getAttribute('d').slice(1).split('L').map(place => place.split(' ').map(Number));
  const dense = new Map([...document.querySelectorAll('[data-told]')].map(path => [path, corners(path)]));
  function nearest(event) {
    const svg = event.target.closest?.('svg.brief');
    spot.remove();
    if (!svg || !dense.size) return;
    const screen = svg.getScreenCTM(), { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(screen.inverse());
    let best, least = 15 / screen.a;
    for (const path of svg.querySelectorAll('g:not(.off) > [data-told]')) dense.get(path).forEach(([px, py], number) => {
      const distance = Math.hypot(px - x, py - y);
      if (distance < least) [best, least] = [{ path, px, py, number }, distance];
    });
    if (!best) return;
    spot.setAttribute('cx', best.px);
    spot.setAttribute('cy', best.py);
    best.path.parentNode.append(spot);
    const of = best.path.parentNode.dataset.series;
    return (of ? of + ': ' : '') + best.path.dataset.told.split('|')[best.number].replace('@', ' at ' + best.path.dataset.axis + ' ');
  }
  addEventListener('pointermove', event => {
    const text = whole(event.target) || told.get(event.target.parentNode) || nearest(event);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)) + 'px';
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
  });

  // Flame graphs: a click shows a frame at full width.
  for (const graph of document.querySelectorAll('.flame svg')) {
    const margin = 10, inner = graph.viewBox.baseVal.width - 2 * margin, letter = 6.6, near = 3e-6;
    const frames = [...graph.querySelectorAll('.frame')].map(g => ({
      g, rect: g.querySelector('rect'), text: g.querySelector('text'), name: told.get(g).split(': ', 1)[0].replace(/_\[k\]$/, ''),
    }));
    for (const f of frames) {
      const [x, y, w] = ['x', 'y', 'width'].map(name => +f.rect.getAttribute(name));
      Object.assign(f, { x: (x - margin) / inner, w: w / inner, d: -y });
    }
    const fit = (name, width) => {
      const room = Math.max(0, Math.floor((width - 5) / letter));
      return name.length <= room ? name : room < 4 ? '' : name.slice(0, room - 2) + '..';
    };
    const zoom = to => {
      for (const f of frames) {
        const around = f.d < to.d && f.x <= to.x + near && f.x + f.w >= to.x + to.w - near;
        const within = f.d >= to.d && f.x >= to.x - near && f.x + f.w <= to.x + to.w + near;
        f.g.classList.toggle('around', around);
        f.g.classList.toggle('away', !around && !within);
        const x = around ? margin : margin + (f.x - to.x) / to.w * inner;
        const width = around ? inner : f.w / to.w * inner;
        f.rect.setAttribute('x', x);
        f.rect.setAttribute('width', Math.max(0, width));
        const label = fit(f.name, width);
        if (!f.text && label) {
          f.text = f.g.appendChild(element('text', { y: 12 - f.d }));
        }
        f.text?.setAttribute('x', x + 3);
        if (f.text) f.text.textContent = label;
      }
    };
    for (const f of frames) f.g.onclick = () => zoom(f);
    // Keys go to the parent, the largest child and the frames beside; Enter is a click, 0 one on all.
    const levels = [...new Set(frames.map(f => f.d))].sort((a, b) => a - b), figure = graph.closest('figure');
    const all = frames.find(f => f.d === levels[0]);
    let at;
    const leave = () => {
      at?.g.classList.remove('at');
      tip.hidden = true;
    };
    const step = {
      ArrowUp: () => frames.filter(f => f.d === levels[levels.indexOf(at.d) + 1] && f.x >= at.x - near && f.x + f.w <= at.x + at.w + near).sort((a, b) => b.w - a.w)[0],
      ArrowDown: () => frames.find(f => f.d === levels[levels.indexOf(at.d) - 1] && f.x <= at.x + near && f.x + f.w >= at.x + at.w - near),
      ArrowRight: () => frames.filter(f => f.d === at.d && f.x > at.x && !f.g.matches('.away')).sort((a, b) => a.x - b.x)[0],
      ArrowLeft: () => frames.filter(f => f.d === at.d && f.x < at.x && !f.g.matches('.away')).sort((a, b) => b.x - a.x)[0],
      Enter: () => at,
      0: () => all,
    };
    figure.onkeydown = event => {
      if (event.target !== figure || event.ctrlKey || event.metaKey || event.altKey || !step[event.key]) return;
      event.preventDefault();
      leave();
      // A click elsewhere may have hidden it.
      at = at && !at.g.matches('.away') ? step[event.key]() ?? at : all;
      if (event.key === 'Enter' || event.key === '0') zoom(at);
      at.g.classList.add('at');
      const { left, bottom } = at.rect.getBoundingClientRect();
      tip.textContent = told.get(at.g);
      tip.hidden = false;
      tip.style.left = Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8)) + 'px';
      tip.style.top = bottom + 6 + 'px';
    };
    figure.addEventListener('blur', leave);
  }

  // Above the first chart that can be zoomed.
  const zoomable = document.querySelector('figure.chart:has(.grid[data-area], [data-series-chart])');
  if (zoomable) {
    const hint = document.createElement('p');
    hint.className = 'note hint';
    hint.textContent = 'Drag over a chart to zoom in. Point at a mark to read it; click a name to hide its series. Keys of a chart: + and - zoom, Shift with an arrow moves, 0 shows all.';
    zoomable.before(hint);
  }

  // A chart fills the window until Escape.
  const dialog = document.body.appendChild(document.createElement('dialog'));
  const gap = document.createElement('div');
  for (const figure of document.querySelectorAll('figure.chart')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'enlarge';
    button.textContent = 'Enlarge';
    // Shown while a part is.
    const whole = document.createElement('button');
    whole.type = 'button';
    whole.className = 'whole';
    whole.textContent = 'Show all';
    whole.hidden = true;
    figure.querySelector('figcaption').after(button, whole);
    button.onclick = () => {
      if (dialog.open) return dialog.close();
      gap.style.height = figure.offsetHeight + 'px';
      figure.replaceWith(gap);
      dialog.append(figure, tip);
      dialog.setAttribute('aria-labelledby', figure.getAttribute('aria-labelledby'));
      dialog.showModal();
      button.textContent = 'Close';
      figure.resized?.();
    };
  }
  dialog.onclose = () => {
    const figure = dialog.querySelector('figure'), button = figure?.querySelector('.enlarge');
    if (!figure) return;
    gap.replaceWith(figure);
    document.body.append(tip);
    tip.hidden = true;
    button.textContent = 'Enlarge';
    button.focus({ preventScroll: true });
    figure.resized?.();
  };

  // Curves: a range that is dragged over is drawn alone, until a double click.
  const short = of => of.toLocaleString('en', { maximumSignificantDigits: 6 });
  // Round values between two, about as many.
  const round = (from, to, number) => {
    const least = (to - from) / number, power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find(times => times * power >= least * (1 - 1e-9));
    return Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, at) => (Math.ceil(from / step) + at) * step);
  };
  // Ticks of a part of an axis, with their places within it.
  function ticks(described, [low, high], number) {
    const [scale, ...figures] = described.split(' '), unit = figures.pop(), [first, last, divisor] = figures.map(Number);
    const at = share => first + share * (last - first), from = at(low), to = at(high), within = value => (value - from) / (to - from);
    if (scale === 'linear') return round(from / divisor, to / divisor, number).map(value => [within(value * divisor), short(value)]);
    if (scale === 'tail') {
      const nines = [0, 1 - Math.log10(5), 1, 2, 3, 4, 5, 6, 7].filter(of => of >= from && of <= to);
      return (nines.length > 1 ? nines : [0.1, 0.5, 0.9].map(share => from + share * (to - from))).map(of => [within(of), short(100 - 100 * 10 ** -of)]);
    }
    const [least, most] = [Math.exp(from), Math.exp(to)], decades = Math.log10(most / least);
    const powers = Array.from({ length: Math.ceil(decades) + 2 }, (_, of) => 10 ** (Math.floor(Math.log10(least)) + of));
    const values = decades < 0.5 ? round(least, most, number) : powers.flatMap(power => (decades < 2.5 ? [1, 2, 5] : [1]).map(times => times * power));
    const told = unit === 'cycles_per_kbyte' ? short : value => show(unit, value, short);
    return values.filter(value => value >= least && value <= most).map(value => [within(Math.log(value)), told(value)]);
  }
  const letter = 7.2;
  for (const [number, grid] of [...document.querySelectorAll('svg .grid[data-area]')].entries()) {
    const svg = grid.closest('svg'), figure = svg.closest('figure');
    const [left, top, right, bottom] = grid.dataset.area.split(' ').map(Number), width = right - left, height = bottom - top;
    const whole = [...grid.children], kept = ['cx', 'cy', 'x', 'x1', 'x2', 'y', 'width', 'height', 'd'];
    const marks = [...svg.querySelectorAll('[data-series] :is(path, circle, rect), .mark > *')].map(mark => [mark, Object.fromEntries(kept.filter(of => mark.hasAttribute(of)).map(of => [of, mark.getAttribute(of)]))]);
    // Labels of marks stand above the area, and nothing else does.
    for (const [of, y] of [['part', top - 7], ['marks', 0]]) {
      const clip = element('clipPath', { id: of + '-' + number });
      clip.append(element('rect', { x: left - 7, y, width: width + 14, height: bottom + 1 - y }));
      svg.prepend(clip);
    }
    const groups = svg.querySelectorAll('[data-series], .mark'), button = figure.querySelector('.whole');
    // The highest place of a mark between two places on the x axis; those of a line at these too.
    function highest([mark, { cx, cy, x, y, d }], from, to) {
      if (cx) return +cx >= from && +cx <= to ? +cy : bottom;
      if (x) return +x >= from && +x <= to ? +y : bottom;
      if (mark.matches('.interval')) {
        const [at, one, other] = d.match(/-?[0-9.]+/g).map(Number);
        return at >= from && at <= to ? Math.max(top, Math.min(one, other)) : bottom;
      }
      const corners = [...d.matchAll(/[ML]([^ ]+) ([^MLHV]+)|H([^V]+)V([^MLHV]+)/g)].map(of => [+(of[1] ?? of[3]), +(of[2] ?? of[4])]);
      const ends = corners.slice(1).flatMap(([x2, y2], of) => {
        const [x1, y1] = corners[of];
        return [from, to].filter(at => x1 < at && at < x2).map(at => y1 + (at - x1) / (x2 - x1) * (y2 - y1));
      });
      return Math.min(bottom, ...ends, ...corners.filter(([at]) => at >= from && at <= to).map(([, y]) => y));
    }
    // The part between two places on the x axis; its height ends above what is drawn there.
    function part(from, to) {
      const is = from > left || to < right;
      const shows = ([mark]) => !mark.closest('.off, .mark');
      let above = is ? Math.min(bottom, ...marks.filter(shows).map(mark => highest(mark, from, to))) : top;
      above = above >= bottom - 0.01 ? top : Math.max(top, above - 0.05 * (bottom - above));
      const toX = x => left + (x - from) / (to - from) * width, toY = y => bottom - (bottom - y) / (bottom - above) * height;
      for (const [mark, was] of marks) {
        const isMark = mark.closest('.mark'), y = isMark ? of => of : toY;
        const set = (of, value) => was[of] !== undefined && mark.setAttribute(of, is ? value : was[of]);
        for (const of of ['cx', 'x', 'x1', 'x2']) set(of, toX(was[of]));
        for (const of of ['cy', 'y']) set(of, y(was[of]));
        set('width', was.width * width / (to - from));
        set('height', isMark ? was.height : was.height * height / (bottom - above));
        set('d', was.d?.replace(/([MLHV])([^MLHVm]+)/g, (_, kind, at) => {
          const [a, b] = at.split(' ').map(Number);
          return kind + (kind === 'H' ? toX(a) : kind === 'V' ? y(a) : toX(a) + ' ' + y(b));
        }));
        if (dense.has(mark)) dense.set(mark, corners(mark));
      }
      groups.forEach(group => is ? group.setAttribute('clip-path', `url(#${group.matches('.mark') ? 'marks' : 'part'}-${number})`) : group.removeAttribute('clip-path'));
      // What has the focus must not vanish.
      if (!is && document.activeElement === button) figure.focus({ preventScroll: true });
      button.hidden = !is;
      grid.replaceChildren(...whole);
      if (!is) return;
      const { x, y } = grid.dataset;
      const across = ticks(y, [0, (bottom - above) / height], 5).map(([at, text]) => [bottom - at * height, text]);
      const inside = across.some(([, text]) => letter * text.length > left - 8);
      const labels = whole.filter(of => of.matches('.tick:has(text)')).map(tick => [+tick.querySelector('line').getAttribute('x1'), tick.querySelector('text')]).filter(([at]) => at >= from && at <= to);
      // Labels too far from one another to say which part it is give way to numbers.
      const along = 'labelled' in grid.dataset && (labels.length > 1 || x.startsWith('names')) ? labels.map(([at, text]) => [toX(at), text.textContent, text.hasAttribute('transform')])
        : ticks(x, [(from - left) / width, (to - left) / width], 8).map(([at, text]) => [left + at * width, text]);
      let last = [-1e9, 0];
      const apart = along.filter(([at, text, slanted]) => {
        const half = letter * (text.length + 1.5) / 2, free = slanted || at - last[0] > half + last[1];
        if (free) last = [at, half];
        return free;
      });
      grid.replaceChildren(
        ...across.flatMap(([at, text]) => [element('line', { x1: left, x2: right, y1: at, y2: at }), element('text', inside ? { x: left + 4, y: at - 4 } : { x: left - 7, y: at + 4, 'text-anchor': 'end' }, text)]),
        ...apart.flatMap(([at, text, slanted]) => [element('line', { x1: at, x2: at, y1: bottom, y2: bottom + 5 }),
          element('text', slanted ? { x: at, y: bottom + 15, 'text-anchor': 'end', transform: `rotate(-32 ${at} ${bottom + 15})` } : { x: at, y: bottom + 19, 'text-anchor': 'middle' }, text)]));
    }
    const chosen = element('rect', { class: 'chosen', y: top, height });
    let shown = [left, right], begin, dragged = false;
    const all = () => part(...shown = [left, right]);
    figure.redraw = () => part(...shown);
    const place = event => Math.min(right, Math.max(left, new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x));
    const end = () => {
      begin = undefined;
      chosen.remove();
    };
    svg.addEventListener('pointerdown', event => {
      dragged = false;
      if (event.button || event.pointerType === 'touch') return;
      begin = place(event);
      event.preventDefault();
    });
    addEventListener('pointermove', event => {
      if (begin === undefined) return;
      const at = place(event);
      chosen.setAttribute('x', Math.min(begin, at));
      chosen.setAttribute('width', Math.abs(at - begin));
      if (Math.abs(at - begin) > 4 && !chosen.parentNode) svg.append(chosen);
    });
    addEventListener('pointerup', event => {
      if (begin === undefined) return;
      const [low, high] = [begin, place(event)].sort((a, b) => a - b).map(at => shown[0] + (at - left) / width * (shown[1] - shown[0]));
      dragged = !!chosen.parentNode;
      end();
      // Nothing finer than what the drawing tells apart.
      if (dragged && high - low > width / 2000) part(...shown = [low, high]);
    });
    addEventListener('pointercancel', end);
    dialog.addEventListener('close', end);
    // The link below the end of a drag is not meant.
    svg.addEventListener('click', event => { if (dragged) event.preventDefault(); }, true);
    svg.addEventListener('dragstart', event => event.preventDefault());
    svg.addEventListener('dblclick', all);
    button.onclick = all;
    figure.onkeydown = event => event.target === figure && zoomedByKey(event, [left, right], shown, (shown[0] + shown[1]) / 2, (from, to) => part(...shown = [from, to]));
  }

  // A link into a folded part opens it; on paper all parts are open.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    // What a link leads to is behind an enlarged chart, which takes its place again first.
    if (dialog.open) {
      dialog.addEventListener('close', () => setTimeout(reveal), { once: true });
      return dialog.close();
    }
    target.querySelector(':scope > details')?.setAttribute('open', '');
    for (let part = target.closest('details'); part; part = part.parentElement.closest('details')) part.open = true;
    target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  addEventListener('beforeprint', () => document.querySelectorAll('section > details, .alike > details, .finding details').forEach(part => { part.open = true; }));

  // For tests, and for who looks: how many charts are drawn.
  drawAll().then(() => {
    const drawn = [...document.querySelectorAll('figure.chart .plot')].filter(plot => plot.querySelector('svg *, canvas'));
    root.dataset.drawn = drawn.length;
  });
})();
