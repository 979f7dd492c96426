"use strict";
// Draws a run (the JSON in #run; observe/html.rs writes it). No other code is loaded, and nothing is fetched.

window.addEventListener("error", event => { document.body.dataset.error = event.message; });

const run = JSON.parse(document.getElementById("run").textContent);
const byId = id => document.getElementById(id);

function make(namespace, name, attributes, children) {
  const element = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children) element.append(child);
  return element;
}
const html = (name, attributes, ...children) => make(null, name, attributes, children);
const svg = (name, attributes, ...children) => make("http://www.w3.org/2000/svg", name, attributes, children);

// ---- numbers ----------------------------------------------------------------------------------------------------

// Columns are lists of numbers, of which -n stands for n zeros.
function unpack(packed) {
  const values = new Float64Array(run.samples);
  let at = 0;
  for (const value of packed) {
    if (value < 0) at -= value; else values[at++] = value;
  }
  return values;
}
const scaled = (value, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) || units[units.length - 1];
  const digits = value / size;
  return `${Number(digits.toPrecision(4))} ${unit}`;
};
const time = us => scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "us"], [1e-3, "ns"]]);
const bytes = n => scaled(n, [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]]);
const gbps = rate => `${Number(rate.toPrecision(4))} Gb/s`;
const largest = values => values.reduce((most, value) => value > most ? value : most, 0);
const sum = values => values.reduce((all, value) => all + value, 0);

const ports = run.ports.map((port, id) => ({
  ...port, id, link: run.links[id >> 1], node: id & 1 ? run.links[id >> 1].b : run.links[id >> 1].a,
  queue: unpack(port.queue), headroom: unpack(port.headroom), paused: unpack(port.paused), rate: unpack(port.rate),
}));
for (const port of ports) {
  const neighbour = ports[port.id ^ 1];
  port.behind = neighbour.headroom;
  port.told = neighbour.stops;
  port.queueMax = largest(port.queue);
  port.pausedAt = port.paused.findIndex(part => part > 0);
}
// Round numbers up to a largest value, some four of them.
function ticks(most) {
  const rough = most / 4 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= rough * 0.999);
  const all = [];
  for (let n = 0; n * step <= most * 1.0001; n++) all.push(n * step);
  return all;
}
const startOf = sample => sample * run.interval_us;
const end = startOf(run.samples);

// ---- what it says in words --------------------------------------------------------------------------------------

function words() {
  const verdict = byId("verdict");
  verdict.className = run.failures.length ? "bad" : "good";
  verdict.append(run.failures.length ? "Not as expected:" : run.expectations);
  if (run.failures.length) verdict.append(html("ul", {}, ...run.failures.map(text => html("li", {}, text))));
  const drops = run.drops.map(([reason, count]) => `${count} (${reason})`).join(", ");
  const facts = {
    "Seed": run.seed, "Trace hash": run.trace, "Ended at": time(run.end_us), "Events": run.events.toLocaleString("en"),
    "Dropped frames": drops || "none", "Deadlock": run.deadlock || "none",
    "Hosts, switches": `${run.nodes.filter(n => !n.is_switch).length}, ${run.nodes.filter(n => n.is_switch).length}`,
    "Pause time of all ports": time(sum(ports.map(p => p.paused_us))),
    "A sample lasts": time(run.interval_us),
  };
  const long = {
    "Seen": run.marks.map(([mark, count]) => `${mark} ${count}`).join(", ") || "nothing rare", "Again": run.again,
  };
  const fact = kind => ([name, value]) => html("div", { class: kind }, html("dt", {}, name), html("dd", {}, String(value)));
  byId("facts").append(...Object.entries(facts).map(fact("fact")), ...Object.entries(long).map(fact("long fact")));
}

// ---- the picture ------------------------------------------------------------------------------------------------

const WIDTH = 1200, TIER = 130, BOX = 46;

// Rows by distance from the hosts; in a row, who is connected to neighbours stands near them.
function arrange() {
  const near = run.nodes.map(() => []);
  for (const link of run.links) { near[link.a].push(link.b); near[link.b].push(link.a); }
  const tier = run.nodes.map(node => node.is_switch ? Infinity : 0);
  const ids = run.nodes.map((_, node) => node);
  let front = ids.filter(node => tier[node] === 0);
  for (let level = 1; front.length; level++) {
    const next = front.flatMap(node => near[node]).filter(node => tier[node] === Infinity);
    for (const node of next) tier[node] = level;
    front = [...new Set(next)];
  }
  const top = largest(tier.filter(Number.isFinite));
  for (let node = 0; node < tier.length; node++) if (tier[node] === Infinity) tier[node] = top + 1;
  const place = run.nodes.map((_, node) => node);
  const order = (row, key) => {
    row.sort((a, b) => key(a) - key(b) || a - b);
    row.forEach((node, at) => { place[node] = (at + 0.5) / row.length; });
  };
  const mean = (node, level) => {
    const below = near[node].filter(other => tier[other] === level);
    return below.length ? sum(below.map(other => place[other])) / below.length : place[node];
  };
  const rows = Array.from({ length: largest(tier) + 1 }, (_, level) => ids.filter(node => tier[node] === level));
  // Hosts stand under their switches, switches as they were numbered or over those below.
  rows[0].forEach((node, at) => { place[node] = at / rows[0].length; });
  for (let level = 1; level < rows.length; level++) order(rows[level], node => mean(node, level - 1));
  if (rows.length > 1) order(rows[0], node => mean(node, 1));
  return { tier, place, rows };
}

const picture = { ports: [], levels: [] };

function half(a, b, bend) {
  // The first half of the curve from a to b, by de Casteljau.
  const c = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - bend };
  const p = { x: (a.x + c.x) / 2, y: (a.y + c.y) / 2 }, q = { x: (c.x + b.x) / 2, y: (c.y + b.y) / 2 };
  const f = n => Number(n.toFixed(1));
  return `M${f(a.x)} ${f(a.y)}Q${f(p.x)} ${f(p.y)} ${f((p.x + q.x) / 2)} ${f((p.y + q.y) / 2)}`;
}

function draw() {
  const { tier, place, rows } = arrange();
  const levels = rows.length, height = TIER * (levels - 1) + 100;
  const at = run.nodes.map((_, node) => ({ x: 20 + place[node] * (WIDTH - 40), y: height - 44 - tier[node] * TIER }));
  const room = id => (WIDTH - 40) / rows[tier[id]].length;
  const own = run.nodes.map((_, id) => ports.filter(port => port.node === id));
  // A switch is the wider the more cables it has, and they end side by side.
  const width = id => Math.min(Math.max(96, 4 * own[id].length), Math.max(8, room(id) * 0.8));
  const reach = run.nodes.map(() => 1);
  for (const { a, b } of run.links) for (const node of [a, b]) reach[node] = Math.max(reach[node], Math.abs(at[a].x - at[b].x));
  const foot = (node, other) => {
    if (!run.nodes[node].is_switch) return at[node];
    return { x: at[node].x + (at[other].x - at[node].x) / reach[node] * (width(node) / 2 - 4), y: at[node].y };
  };
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, id: "network", role: "img", "aria-describedby": "state", "aria-label": "The network" });
  run.links.forEach((link, cable) => {
    const [a, b] = [foot(link.a, link.b), foot(link.b, link.a)];
    const isFar = tier[link.a] === tier[link.b] && Math.abs(place[link.a] - place[link.b]) * rows[tier[link.a]].length > 1.5;
    const bend = isFar ? 90 : 0;
    for (const [id, from, to] of [[2 * cable, a, b], [2 * cable + 1, b, a]]) {
      const path = svg("path", { d: half(from, to, bend), class: "port", "data-port": ports[id].name });
      path.append(svg("title", {}, ""));
      path.addEventListener("click", () => choose([id], true));
      picture.ports.push(path);
      root.append(path);
    }
  });
  run.nodes.forEach((node, id) => {
    const { x, y } = at[id];
    if (!node.is_switch) {
      root.append(svg("circle", { cx: x, cy: y, r: Math.min(7, Math.max(1.5, room(id) / 2.6)), class: "host" }, svg("title", {}, node.name)));
      if (room(id) >= 8 * node.name.length) root.append(svg("text", { x, y: y + 24, "text-anchor": "middle" }, node.name));
      return;
    }
    const wide = width(id);
    const box = svg("rect", { x: x - wide / 2, y: y - BOX / 2, width: wide, height: BOX, rx: 4, class: "box" }, svg("title", {}, node.name));
    box.addEventListener("click", () => choose(own[id].map(port => port.id), true));
    const fill = svg("rect", { x: x - wide / 2 + 1, width: wide - 2, class: "level", "data-switch": node.name });
    root.append(box, fill);
    const label = svg("text", { x, y: y + 4, "text-anchor": "middle", class: "inside" });
    if (wide >= 60) root.append(label);
    if (room(id) >= 7 * node.name.length) root.append(svg("text", { x, y: y - BOX / 2 - 6, "text-anchor": "middle", class: "inside" }, node.name));
    picture.levels.push({ fill, label, bottom: y + BOX / 2 - 1, held: own[id].reduce((all, port) => {
      port.queue.forEach((n, sample) => { all[sample] += n; });
      return all;
    }, new Float64Array(run.samples)) });
  });
  picture.most = largest(picture.levels.map(level => largest(level.held)));
  byId("picture").append(root);
}

function show(sample) {
  let stopped = 0, longest = null;
  ports.forEach((port, id) => {
    const path = picture.ports[id], paused = port.paused[sample] / 1000, rate = port.rate[sample] / 1000;
    stopped += paused > 0;
    if (port.queue[sample] > 0 && (!longest || port.queue[sample] > longest.queue[sample])) longest = port;
    path.setAttribute("class", paused > 0 ? "port paused" : rate > 0 ? "port busy" : "port");
    path.style.strokeWidth = paused > 0 ? 2 + 2 * paused : 1.5 + 2.5 * Math.min(1, rate);
    path.firstChild.textContent = `${port.name}: queue ${bytes(port.queue[sample])}, ${gbps(rate * port.link.gbps[port.id & 1])} of ${port.link.gbps[port.id & 1]}, paused ${Math.round(paused * 100)} % of the sample`;
  });
  for (const level of picture.levels) {
    const held = level.held[sample], part = picture.most > 0 ? held / picture.most : 0;
    level.fill.setAttribute("height", (part * (BOX - 2)).toFixed(2));
    level.fill.setAttribute("y", (level.bottom - part * (BOX - 2)).toFixed(2));
    level.fill.dataset.bytes = held;
    level.label.textContent = held > 0 ? bytes(held) : "";
  }
  byId("now").textContent = `${time(startOf(sample))} to ${time(startOf(sample + 1))}`;
  byId("state").textContent = `${stopped} of ${ports.length} sending sides are paused; ` +
    (longest ? `the longest queue is that of ${longest.name}, ${bytes(longest.queue[sample])}` : "all queues are empty");
  for (const cursor of cursors) {
    const x = cursor.left + (sample + 0.5) / run.samples * cursor.width;
    cursor.line.setAttribute("x1", x);
    cursor.line.setAttribute("x2", x);
  }
  document.body.dataset.sample = sample;
}

// ---- diagrams over time -----------------------------------------------------------------------------------------

const MOST = 8;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "", "7 3", "2 3", "9 3 2 3"];
let cursors = [];

// A frame with axes; `plot` is where to draw.
function frame(name, height, left, right) {
  const root = svg("svg", { viewBox: `0 0 1000 ${height}`, role: "img", "aria-label": name });
  const width = 1000 - left - right, top = 26, bottom = height - 20;
  root.append(svg("text", { x: 8, y: 16 }, name));
  root.append(svg("line", { x1: left, x2: left + width, y1: bottom, y2: bottom, class: "axis" }));
  return { root, left, width, top, bottom };
}

// Times along the bottom.
function timeLabels(plot, most) {
  for (const us of ticks(most)) {
    const x = plot.left + plot.width * us / most;
    const anchor = us === 0 ? "start" : x > 970 ? "end" : "middle";
    plot.root.append(svg("line", { x1: x, x2: x, y1: plot.bottom, y2: plot.bottom + 4, class: "axis" }));
    plot.root.append(svg("text", { x, y: plot.bottom + 15, "text-anchor": anchor, class: "dim" }, time(us)));
  }
}

// Values along the left side; `y` says where they are.
function valueLabels(plot, values, y, unit) {
  for (const value of values) {
    plot.root.append(svg("line", { x1: plot.left, x2: plot.left + plot.width, y1: y(value), y2: y(value), class: "axis" }));
    plot.root.append(svg("text", { x: plot.left - 6, y: Number(y(value)) + 4, "text-anchor": "end", class: "dim" }, unit(value)));
  }
}

function timeAxis(plot) {
  timeLabels(plot, end);
  const line = svg("line", { y1: plot.top, y2: plot.bottom, class: "cursor" });
  plot.root.append(line);
  plot.root.addEventListener("click", event => {
    const box = plot.root.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * 1000;
    goTo(Math.floor((x - plot.left) / plot.width * run.samples));
  });
  return { line, left: plot.left, width: plot.width };
}

function lines(name, series, most, unit) {
  const plot = frame(name, 170, 70, 12);
  const y = value => (plot.bottom - (plot.bottom - plot.top) * Math.min(1, value / (most || 1))).toFixed(1);
  valueLabels(plot, ticks(most), y, unit);
  series.forEach(({ values, name }, number) => {
    const step = plot.width / run.samples;
    let path = "", last = null;
    values.forEach((value, sample) => {
      if (value === last) return;
      const x = (plot.left + sample * step).toFixed(1);
      path += last === null ? `M${x} ${y(value)}` : `H${x}V${y(value)}`;
      last = value;
    });
    plot.root.append(svg("path", { d: `${path}H${plot.left + plot.width}`, class: "line", stroke: `var(--c${number})`, "stroke-dasharray": DASHES[number], "data-series": name }));
  });
  return { root: plot.root, cursor: timeAxis(plot) };
}

function charts() {
  const chosen = [...byId("ports").selectedOptions].slice(0, MOST).map(option => ports[option.value]);
  const of = column => chosen.map(port => ({ name: port.name, values: port[column] }));
  const most = column => largest(chosen.map(port => largest(port[column])));
  const arrived = new Float64Array(run.samples);
  for (const flow of run.flows) unpack(flow.arrived).forEach((n, sample) => { arrived[sample] += n * 8e-3 / run.interval_us; });
  const drawn = [
    lines("Longest queue in each sample", of("queue"), most("queue"), bytes),
    lines("Rate, of the link", of("rate"), 1000, part => `${part / 10} %`),
    lines("Paused, of each sample", of("paused"), 1000, part => `${part / 10} %`),
    lines("Headroom that the neighbour needs for what the port sends", of("behind"), most("behind"), bytes),
    lines("Payload that arrives, all flows", [{ name: "all", values: arrived }], largest(arrived), gbps),
  ];
  const legend = html("div", { class: "legend" }, ...chosen.map((port, number) => html("span", {},
    svg("svg", { viewBox: "0 0 34 10" }, svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, class: "line", stroke: `var(--c${number})`, "stroke-dasharray": DASHES[number] })), port.name)));
  byId("charts").replaceChildren(legend, ...drawn.map(chart => chart.root));
  cursors = [...drawn.map(chart => chart.cursor), ...fixedCursors];
}

function choose(ids, isAlone) {
  for (const option of byId("ports").options) {
    const isWanted = ids.includes(Number(option.value));
    option.selected = isAlone ? isWanted : isWanted || option.selected;
  }
  charts();
  show(Number(byId("time").value));
}

function listPorts() {
  byId("most").textContent = MOST;
  const ranked = [...ports].sort((a, b) => b.queueMax - a.queueMax || b.paused_us - a.paused_us || a.id - b.id);
  byId("ports").append(...ranked.map(port => html("option", { value: port.id }, port.name)));
  byId("ports").addEventListener("change", () => { charts(); show(Number(byId("time").value)); });
  // The longest queues, and of those who were paused the first.
  const paused = ports.filter(port => port.pausedAt >= 0).sort((a, b) => a.pausedAt - b.pausedAt);
  choose([...ranked.slice(0, 3), ...paused.slice(0, 3)].map(port => port.id), true);
}

// ---- pauses -----------------------------------------------------------------------------------------------------

let fixedCursors = [];

function pauses() {
  const stopped = ports.filter(port => port.pausedAt >= 0).sort((a, b) => a.pausedAt - b.pausedAt || a.id - b.id);
  if (!stopped.length) {
    byId("pauses").append(html("p", { class: "note" }, "Nobody was paused."));
    byId("totals").remove();
    return;
  }
  const shown = stopped.slice(0, 60), row = shown.length > 24 ? 11 : 16;
  const plot = frame("Paused ports, the first on top: how a congestion spreads", shown.length * row + 50, 150, 12);
  shown.forEach((port, number) => {
    const y = plot.top + number * row, step = plot.width / run.samples;
    plot.root.append(svg("text", { x: plot.left - 8, y: y + row - 4, "text-anchor": "end", style: `font-size:${row - 2 > 12 ? 12 : row - 2}px` }, port.name));
    for (let from = 0; from < run.samples; from++) {
      if (!port.paused[from]) continue;
      let to = from, part = 0;
      while (to < run.samples && port.paused[to]) part += port.paused[to++];
      plot.root.append(svg("rect", { x: (plot.left + from * step).toFixed(2), y: y + 1, width: Math.max(0.7, (to - from) * step).toFixed(2), height: row - 3, class: "bar", "fill-opacity": (0.3 + 0.7 * part / 1000 / (to - from)).toFixed(2), "data-port": port.name }));
      from = to;
    }
  });
  fixedCursors = [timeAxis(plot)];
  byId("pauses").append(plot.root);
  if (stopped.length > shown.length) byId("pauses").append(html("p", { class: "note" }, `${stopped.length - shown.length} more ports were paused later; the table has them all.`));
  const ranked = [...stopped].sort((a, b) => b.paused_us - a.paused_us);
  table("totals", ["port", "paused", "of the run", "times told to stop", "longest queue", "first paused at"], ranked.map(port => [
    port.name, time(port.paused_us),
    html("span", {}, `${(100 * port.paused_us / end).toFixed(1)} %`, html("span", { class: "share", style: `width:${Math.min(100, 100 * port.paused_us / end).toFixed(1)}px` })),
    String(port.told), bytes(port.queueMax), time(startOf(port.pausedAt))]));
}

function table(id, head, rows) {
  const cell = value => html("td", {}, value);
  byId(id).append(html("table", {}, html("thead", {}, html("tr", {}, ...head.map(name => html("th", { scope: "col" }, name)))),
    html("tbody", {}, ...rows.map(row => html("tr", {}, ...row.map(cell))))));
}

// ---- flows ------------------------------------------------------------------------------------------------------

function flows() {
  const done = run.flows.filter(flow => flow.completion_us !== null).map(flow => flow.completion_us).sort((a, b) => a - b);
  const slow = run.flows.filter(flow => flow.slowdown !== null).map(flow => flow.slowdown).sort((a, b) => a - b);
  const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)];
  byId("summary").textContent = `${done.length} of ${run.flows.length} flows are complete.` + (done.length ?
    ` The last was at ${time(largest(run.flows.map(flow => flow.completion_us === null ? 0 : flow.start_us + flow.completion_us)))}. Half of them took at most ${time(at(done, 0.5))}, 99 of 100 at most ${time(at(done, 0.99))}.` : "") + (slow.length ?
    ` Slowdown against a flow alone: ${at(slow, 0.5).toFixed(2)} in the middle, ${at(slow, 1).toFixed(2)} at worst.` : "");
  if (done.length) {
    const plot = frame("Part of the flows that are complete after so long", 220, 60, 16);
    const most = done[done.length - 1] * 1.05;
    const x = us => (plot.left + plot.width * us / most).toFixed(1), y = part => (plot.bottom - (plot.bottom - plot.top) * part).toFixed(1);
    valueLabels(plot, ticks(1), y, part => `${Math.round(part * 100)} %`);
    timeLabels(plot, most);
    let path = `M${x(0)} ${y(0)}`;
    done.forEach((us, number) => { path += `H${x(us)}V${y((number + 1) / run.flows.length)}`; });
    plot.root.append(svg("path", { d: `${path}H${plot.left + plot.width}`, class: "line", stroke: "var(--c0)", id: "cdf-line" }));
    byId("cdf").append(plot.root);
  }
  const given = (value, text) => value === null ? "" : text(value);
  const hex = n => "0x" + n.toString(16);
  const name = flow => flow.qps === null ? `${flow.from} to ${flow.to}` : `${flow.from} QP ${hex(flow.qps[0])} to ${flow.to} QP ${hex(flow.qps[1])}`;
  // Of programs, messages and packets that left again; of the others, how long they would have taken alone.
  const ofPrograms = run.flows.some(flow => flow.qps !== null), ofOthers = run.flows.some(flow => flow.qps === null);
  const columns = [["flow", name], ["operation", flow => flow.op], ["arrived", flow => bytes(flow.bytes)], ["of", flow => flow.size === null ? "no end" : bytes(flow.size)],
    ...(ofPrograms ? [["messages", flow => given(flow.messages, String)], ["sent again", flow => given(flow.sent_again, n => n === 1 ? "1 packet" : `${n} packets`)]] : []),
    ["starts at", flow => time(flow.start_us)], ["took", flow => given(flow.completion_us, time)], ["goodput", flow => given(flow.goodput_gbps, gbps)],
    ...(ofOthers || !ofPrograms ? [["alone", flow => given(flow.ideal_us, time)], ["slowdown", flow => given(flow.slowdown, n => n.toFixed(2))]] : []),
    ["failure", flow => flow.failure || ""]];
  table("flows", columns.map(column => column[0]), run.flows.map(flow => columns.map(column => column[1](flow))));
}

// ---- time -------------------------------------------------------------------------------------------------------

function goTo(sample) {
  byId("time").value = Math.max(0, Math.min(run.samples - 1, sample));
  show(Number(byId("time").value));
}

let playing = null;
function play(isOn) {
  clearInterval(playing);
  playing = isOn ? setInterval(() => {
    const next = Number(byId("time").value) + 1;
    if (next >= run.samples) return play(false);
    goTo(next);
  }, Math.max(30, 12000 / run.samples)) : null;
  byId("play").textContent = isOn ? "Stop" : "Play";
  byId("play").setAttribute("aria-pressed", String(isOn));
  if (isOn && Number(byId("time").value) >= run.samples - 1) goTo(0);
}

function begin() {
  words();
  if (run.samples > 0) {
    byId("time").max = run.samples - 1;
    draw();
    pauses();
    listPorts();
    flows();
    byId("time").addEventListener("input", () => show(Number(byId("time").value)));
    byId("play").addEventListener("click", () => play(playing === null));
    // The moment in which most had to stop, or that the address names: report.html#sample=17.
    const count = sample => sum(ports.map(port => port.paused[sample] > 0 ? 1 : 0)) * 1e12 + largest(ports.map(port => port.queue[sample]));
    let busiest = 0, most = -1;
    for (let sample = 0; sample < run.samples; sample++) if (count(sample) > most) [busiest, most] = [sample, count(sample)];
    const named = () => /^#sample=(\d+)$/.exec(location.hash);
    const go = () => goTo(named() ? Number(named()[1]) : busiest);
    window.addEventListener("hashchange", go);
    go();
  } else {
    byId("state").textContent = "Nothing happened.";
  }
  document.body.dataset.ready = "true";
}
begin();
