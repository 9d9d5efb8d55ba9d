"use strict";
// Draws what the page's block of JSON holds. Names are text: nothing here makes markup of them.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MORE = 64; // rows of a table before a button shows further ones

// Elements

function fill(made, about, children) {
  for (const [name, value] of Object.entries(about || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const el = (name, about, ...children) => fill(document.createElement(name), about, children);
const svg = (name, about, ...children) => fill(document.createElementNS(SVG, name), about, children);
const bdi = (text) => el("bdi", { title: text.length > 40 ? text : null }, text);

function figure(value, text) {
  return value === null || value === undefined ? "" : el("data", { value: String(value) }, text(value));
}
const seconds = (value) => figure(value, duration);
const nanoseconds = (value) => figure(value, (found) => duration(found / 1e9));
const share = (value) => figure(value, (found) => `${Math.round(100 * found)} %`);

function duration(value) {
  if (Math.abs(value) >= 0.9995) return `${value.toFixed(2)} s`;
  if (Math.abs(value) >= 0.001) return `${Number((value * 1000).toPrecision(3))} ms`;
  return `${Math.round(value * 1e6)} µs`;
}
const signed = (value) => `${value < 0 ? "-" : "+"}${duration(Math.abs(value))}`;

// The tip follows the pointer; a tap shows it, too

const tip = document.getElementById("tip");

function tipped(around, text) {
  const show = (event) => {
    const said = text(event);
    tip.hidden = !said;
    if (!said) return;
    tip.textContent = said;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    const below = event.clientY + 18;
    tip.style.top = `${below + box.height > innerHeight ? Math.max(4, event.clientY - box.height - 10) : below}px`;
  };
  around.addEventListener("pointermove", show);
  around.addEventListener("pointerdown", show);
  around.addEventListener("pointerleave", () => { tip.hidden = true; });
}
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// A picture of its own size, which paper may shrink
const sized = (width, height) => ({ width, height, viewBox: `0 0 ${width} ${height}` });

// Draws again when the width changes

function drawn(root, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(root.clientWidth);
    if (width && width !== last) {
      last = width;
      draw(width);
    }
  }).observe(root);
}

function legend(...entries) {
  return el("div", { class: "legend" }, entries.map(([kind, text]) => el("span", {}, kind ? el("i", { class: kind }) : null, text)));
}

// A table whose columns sort, and that shows some of its rows at first

function table(columns, rows, about = {}) {
  const body = el("tbody");
  const holder = el("div", { class: "scroll" });
  const more = el("button", { class: "more", type: "button", onclick: () => { shown += 4 * MORE; fillIn(); } });
  let order = rows, sorted = null, down = true, shown = MORE, wanted = () => true;
  const heads = columns.map((column, number) =>
    el("th", { class: column.number ? "n" : null, scope: "col" },
      el("button", { type: "button", title: column.title || null, onclick: () => sort(number) }, column.name)));
  function sort(number) {
    if (number !== null) {
      down = sorted === number ? !down : Boolean(columns[number].number);
      if (sorted === number && down === Boolean(columns[number].number)) number = null; // the third click
    }
    sorted = number;
    heads.forEach((head, each) => {
      if (each === sorted) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const key = number === null ? null : columns[number].key;
    order = key === null ? rows : [...rows].sort((one, other) => compare(key(one), key(other)) * (down ? -1 : 1));
    fillIn();
  }
  function fillIn() {
    const found = order.filter(wanted);
    body.replaceChildren(...found.slice(0, shown).map((row) => {
      const cells = columns.map((column, number) => {
        const cell = el(number === (about.head || 0) ? "th" : "td", { class: column.number ? "n" : null }, column.cell(row, sorted === null));
        return cell;
      });
      return el("tr", {}, cells);
    }));
    more.hidden = found.length <= shown;
    more.textContent = `Show more of ${found.length} rows`;
    none.hidden = found.length > 0;
  }
  const none = el("p", { class: "quiet", hidden: true }, "Nothing found.");
  holder.append(el("table", {}, el("thead", {}, el("tr", {}, heads)), body), none, more);
  fillIn();
  return {
    holder,
    search: (test) => { wanted = test; shown = MORE; fillIn(); },
  };
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return -1;
  if (other === null || other === undefined) return 1;
  return typeof one === "string" ? one.localeCompare(other) : one - other;
}

// Steps over time

// Two runs have one scale; what takes far longer than the steps that count is cut
const ceiling = () => Math.max(...data.runs.filter((run) => !("why" in run.steps)).map(({ steps }) => {
  const longest = Math.max(...steps.seconds);
  const typical = steps.seconds.filter((_, at) => steps.state[at] === 0);
  return typical.length ? Math.min(longest, Math.max(1.25 * Math.max(...typical), 2 * Math.min(...typical))) : longest;
}));

function drawSteps(root, run, choose) {
  const steps = run.steps;
  const count = steps.number.length;
  const median = run.explain.seconds ? run.explain.seconds.median : null;
  const typical = steps.seconds.filter((_, each) => steps.state[each] === 0);
  const usual = Math.max(...typical);
  const top = ceiling();
  let slowest = steps.longest;
  if (typical.length) slowest = steps.seconds.findIndex((each, at) => steps.state[at] === 0 && each === usual);
  const chart = el("div");
  const said = el("p", { class: "quiet" });
  const present = steps.states.map((name, each) => [`k${each}`, name]).filter((_, each) => steps.state.includes(each));
  root.append(chart, legend(...present), said);
  if (steps.all > count) said.textContent = `${steps.all} steps; each bar is the slowest of several.`;
  let chosen = -1, marker = null;

  const describe = (at) =>
    `step ${steps.number[at]}: ${duration(steps.seconds[at])}${steps.state[at] ? `, ${steps.states[steps.state[at]]}` : ""}`;

  drawn(chart, (width) => {
    const height = 150, left = 52, right = 8, above = 20, below = 26;
    const inner = width - left - right, tall = height - above - below;
    const x = (at) => left + (at / count) * inner;
    const wide = inner / count;
    const y = (value) => above + tall * (1 - Math.min(value, top) / top);
    const made = svg("svg", { class: "chart", ...sized(width, height), tabindex: 0, role: "slider", "aria-label": "step",
      "aria-valuemin": steps.number[0], "aria-valuemax": steps.number[count - 1] });
    let from = -1;
    for (let at = 0; at <= count; at++) { // shade the warm-up
      const warm = at < count && steps.state[at] === 1;
      if (warm && from < 0) from = at;
      if (!warm && from >= 0) {
        made.append(svg("rect", { class: "band", x: x(from), y: above, width: x(at) - x(from), height: tall }));
        if (x(at) - x(from) > 50) made.append(svg("text", { x: x(from) + 3, y: above + 12 }, "warm-up"));
        from = -1;
      }
    }
    for (const value of ticks(top, 3)) {
      made.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      made.append(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value ? duration(value) : "0"));
    }
    for (let at = 0; at < count; at++) {
      const high = y(steps.seconds[at]);
      const gap = wide > 4 ? 1 : 0;
      made.append(svg("rect", { class: `bar s${steps.state[at]}`, x: x(at) + gap / 2, y: high,
        width: Math.max(0.6, wide - gap), height: above + tall - high }));
      if (steps.seconds[at] > top) { // cut
        made.append(svg("rect", { class: "over", x: x(at), y: above + 5, width: Math.max(1, wide), height: 3 }));
      }
    }
    if (median !== null) {
      made.append(svg("line", { class: "median", x1: left, x2: width - right, y1: y(median), y2: y(median) }));
    }
    const middle = x(slowest) + wide / 2;
    const anchor = middle > width - 110 ? "end" : middle < left + 110 ? "start" : "middle";
    made.append(svg("text", { class: "strong", x: middle, y: 12, "text-anchor": anchor },
      `slowest: ${steps.number[slowest]}, ${duration(steps.seconds[slowest])}`));
    const every = Math.max(1, Math.ceil(count / Math.max(2, inner / 70)));
    for (let at = 0; at < count; at += every) {
      made.append(svg("text", { x: x(at) + wide / 2, y: height - 10, "text-anchor": "middle" }, steps.number[at]));
    }
    const at = (event) => Math.max(0, Math.min(count - 1,
      Math.floor(((event.clientX - made.getBoundingClientRect().left - left) / inner) * count)));
    made.addEventListener("click", (event) => choose(at(event)));
    made.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      let next = chosen + move;
      while (steps.drawn[next] === -1) next += move;
      if (next >= 0 && next < count) choose(next);
    });
    tipped(made, (event) => describe(at(event)));
    marker = (which) => {
      made.querySelectorAll(".chosen, .pointer").forEach((each) => each.remove());
      if (which < 0) return;
      const high = y(steps.seconds[which]);
      made.append(svg("rect", { class: "chosen", x: x(which), y: high - 1, width: Math.max(2, wide), height: above + tall - high + 2 }));
      const tipX = x(which) + wide / 2;
      made.append(svg("path", { class: "pointer", d: `M${tipX} ${above + tall + 2}l5 7h-10z` }));
      made.setAttribute("aria-valuenow", steps.number[which]);
      made.setAttribute("aria-valuetext", describe(which));
    };
    chart.replaceChildren(made);
    marker(chosen);
  });
  return (which) => {
    chosen = which;
    if (marker) marker(which);
  };
}

function ticks(most, about) {
  const raw = most / about;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= raw);
  const found = [];
  for (let each = 0; each <= most * 1.0001; each += step) found.push(each);
  return found;
}

// One step, all workers

const KINDS = { work: "", handover: "after the wait", data: "waits for data", unexplained: "unexplained", dispatch: "call under way", outside: "", samples: "samples in flight" };
const ROW = 26;

function drawGantt(root, run, chooseDrawn) {
  const gantt = run.gantt;
  const select = el("select", { "aria-label": "step", onchange: () => chooseDrawn(Number(select.value)) },
    gantt.steps.map((step, at) => el("option", { value: at },
      `step ${step.step} · ${duration(step.seconds)}${step.why === "chosen" ? "" : ` · ${step.why}`}${step.state ? ` · ${run.steps.states[step.state]}` : ""}`)));
  let zoom = 1, width = 0, current = null;
  const button = (text, title, change) => el("button", { type: "button", title, "aria-label": title, onclick: () => { zoom = change(zoom); show(); } }, text);
  const note = el("p", { class: "quiet note", role: "status" });
  const holder = el("div"), parts = el("div");
  root.append(
    el("div", { class: "tools" }, select,
      button("+", "zoom in", (each) => Math.min(64, each * 2)), button("−", "zoom out", (each) => Math.max(1, each / 2)),
      button("whole step", "show the whole step", () => 1)),
    note, holder,
    legend(["path", "critical path"], ["wait", "waits"], ["fold", "many calls, known together"]), parts);
  drawn(holder, (found) => { width = found; show(); });

  const place = (number) => (number < 0 ? "(outside any scope)" : gantt.places[number]);

  function show() {
    if (!current || !width) return;
    const labels = el("div", { class: "labels" });
    const plot = el("div", { class: "plot" });
    const onPath = new Set();
    for (let at = 0; at < current.stretches.length; at += 5) onPath.add(current.stretches[at]);
    current.rows.forEach((row, number) => {
      const same = number && current.rows[number - 1].worker === row.worker;
      const name = same && row.track ? `· ${row.track}` : row.worker;
      labels.append(el("div", { class: onPath.has(number) ? "on" : null, title: [row.worker, row.node, row.track].filter(Boolean).join(", ") }, el("bdi", {}, name)));
    });
    holder.replaceChildren(el("div", { class: "gantt" }, labels, plot));
    plot.append(picture(Math.max(240, plot.clientWidth) * zoom));
  }

  function picture(inner) {
    const length = current.seconds * 1e9;
    const x = (time) => (time / length) * inner;
    const height = 22 + current.rows.length * ROW;
    const made = svg("svg", { ...sized(inner, height), preserveAspectRatio: "none", role: "img", "aria-label": `step ${current.step}` },
      svg("defs", {}, svg("pattern", { id: "waits", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "lane", width: 6, height: 6 }), svg("path", { class: "hatch", d: "M0 0V6" }))));
    for (const value of ticks(current.seconds, Math.max(2, inner / 130))) {
      made.append(svg("line", { class: "grid", x1: x(value * 1e9), x2: x(value * 1e9), y1: 16, y2: height }));
      if (x(value * 1e9) < inner - 40) made.append(svg("text", { x: x(value * 1e9) + 2, y: 12 }, value ? duration(value) : "0"));
    }
    const boxes = svg("g"), texts = svg("g");
    current.rows.forEach((row, number) => {
      const top = 22 + number * ROW;
      boxes.append(svg("rect", { class: "lane", x: 0, y: top, width: inner, height: 20 }));
      const shown = [];
      const last = {}; // where the last one of each depth ended: what a pixel cannot show is left out
      const box = (at, depth, start, size, folded) => {
        const wide = x(size), begin = x(start);
        if (wide < 0.5 && begin + wide < (last[depth] || -1) + 0.5) return;
        last[depth] = begin + wide;
        const inset = Math.min(depth, 4) * 3;
        const name = place(at).split("/").pop();
        const kind = gantt.waits[at] ? "wait" : `c${hue(name)}`;
        const rect = svg("rect", { class: `span ${kind}${folded ? " fold" : ""}`, x: begin, y: top + inset,
          width: Math.max(0.6, wide), height: 20 - inset });
        const calls = folded ? `\n×${folded[0]}, ${duration(folded[1] / 1e9)} in all` : "";
        rect.about = `${row.worker}: ${place(at)}\n${duration(size / 1e9)}, from ${duration(start / 1e9)}${calls}`;
        boxes.append(rect);
        const fits = Math.floor((wide - 6) / 6.7);
        let text = null;
        if (fits > 3 && !folded) {
          text = svg("text", { class: "in", x: begin + 3, y: top + inset + Math.max(9, 14 - inset / 2) }, name.length > fits ? `${name.slice(0, fits - 1)}…` : name);
          texts.append(text);
        }
        shown.push([begin, begin + wide, depth, text]);
      };
      const found = [];
      for (let at = 0; at < row.folds.length; at += 6) {
        found.push([...row.folds.slice(at, at + 4), row.folds.slice(at + 4, at + 6)]);
      }
      for (let at = 0; at < row.spans.length; at += 4) found.push([...row.spans.slice(at, at + 4), null]);
      found.sort((one, other) => one[1] - other[1] || one[2] - other[2]); // outer ones first
      for (const each of found) box(...each);
      // an outer scope's name gives way to the scopes inside it
      for (const [begin, , depth, text] of shown) {
        if (text === null) continue;
        const right = begin + 6 + text.textContent.length * 6.7;
        if (shown.some(([from, to, deeper]) => deeper > depth && from < right && to > begin)) text.remove();
      }
    });
    const list = current.stretches;
    const path = svg("g", { class: list.length > 5 * 60 ? "many" : null });
    let before = -1;
    for (let at = 0; at < list.length; at += 5) {
      const [row, where, start, size, kind] = list.slice(at, at + 5);
      if (row < 0) { before = -1; continue; }
      const top = 22 + row * ROW + 20;
      const open = gantt.kinds[kind] === "unexplained" || gantt.kinds[kind] === "outside";
      const rect = svg("rect", { class: `critical${open ? " open" : ""}`, x: x(start), y: top - 1, width: Math.max(1, x(size)), height: 4 });
      rect.about = `critical path: ${current.rows[row].worker}: ${place(where < 0 ? -1 : where)}\n${duration(size / 1e9)}${KINDS[gantt.kinds[kind]] ? `, ${KINDS[gantt.kinds[kind]]}` : ""}`;
      path.append(rect);
      if (before >= 0 && before !== row) {
        path.append(svg("line", { class: "jump", x1: x(start), x2: x(start), y1: 22 + before * ROW + 21, y2: top + 1 }));
      }
      before = row;
    }
    made.append(boxes, texts, path);
    tipped(made, (event) => event.target.about || "");
    return made;
  }

  return (at, wanted) => {
    current = gantt.steps[at];
    select.value = String(at);
    const said = [];
    if (wanted !== null && wanted !== current.step) {
      said.push(`The page has the scopes of ${gantt.steps.length} of ${gantt.all} steps; the nearest to step ${wanted} is shown.`);
    }
    const workers = new Set(current.rows.map((row) => row.worker)).size;
    if (workers < current.processes) said.push(`${workers} of ${current.processes} processes: those on the critical path, and of each group the ones that worked most and least.`);
    const left = current.rows.reduce((sum, row) => sum + row.left, 0);
    if (left) said.push(`${left} shorter scopes are left out.`);
    note.textContent = said.join(" ");
    show();
    const found = table([
      { name: "time", number: true, key: (part) => part.seconds, cell: (part) => seconds(part.seconds) },
      { name: "share", number: true, key: (part) => part.share, cell: (part) => share(part.share) },
      { name: "worker", key: (part) => part.worker, cell: (part) => bdi(part.worker) },
      { name: "scope", key: (part) => part.scope, cell: (part) => [bdi(part.scope), KINDS[part.kind] ? el("span", { class: "quiet" }, ` ${KINDS[part.kind]}`) : ""] },
      { name: "in steps", number: true, key: (part) => part.steps, cell: (part) => share(part.steps) },
    ], current.path.parts, { head: 2 });
    parts.replaceChildren(
      el("h3", {}, "Critical path of step ", el("data", { value: String(current.step), class: "step" }, String(current.step)), ": ", seconds(current.path.seconds)),
      found.holder,
      current.path.others ? el("p", { class: "quiet" }, `and ${current.path.others} shorter parts`) : "");
  };
}

// Workers and places

const LEVELS = [0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32];

function drawHeat(root, run) {
  const heat = run.heat;
  root.classList.add("heat");
  root.append(el("p", { class: "quiet" }, "How far a step's time in each scope is from the median of its group, as a share of a step. Sort by a scope: click its name."));
  root.append(legend(["w", "works longer"], ["b", "waits longer"], ["l", "less than the median"]));
  root.append(el("div", { class: "maps" }, heat.groups.map((group) => el("div", {}, heatOf(group, heat)))));
}

function heatOf(group, heat) {
  const body = el("tbody");
  const away = (row, column) => row.seconds[column] - group.median[column];
  const worst = (row) => Math.max(...row.seconds.map((_, column) => Math.abs(away(row, column))));
  const many = group.rows.length > MORE;
  let shown = MORE, order = group.rows;
  const more = el("button", { class: "more", type: "button", onclick: () => { shown += 4 * MORE; fillIn(); } });
  const select = el("select", { "aria-label": "order", onchange: () => sort(select.value) },
    el("option", { value: "rank" }, group.folded ? "by node" : "by rank"), el("option", { value: "worst" }, "largest deviation first"));
  const heads = group.places.map((path, column) =>
    el("th", { scope: "col" }, el("button", { type: "button", title: path, onclick: () => sort(column) }, el("bdi", {}, path.split("/").slice(-2).join("/")))));
  function sort(by) {
    heads.forEach((head, column) => (column === by ? head.setAttribute("aria-sort", "descending") : head.removeAttribute("aria-sort")));
    if (typeof by === "number") order = [...group.rows].sort((one, other) => away(other, by) - away(one, by));
    else order = by === "worst" ? [...group.rows].sort((one, other) => worst(other) - worst(one)) : group.rows;
    fillIn();
  }
  function fillIn() {
    body.replaceChildren(...order.slice(0, shown).map((row) =>
      el("tr", {}, el("th", { scope: "row" }, bdi(row.name)), row.seconds.map((value, column) => {
        const difference = away(row, column);
        const level = LEVELS.filter((each) => Math.abs(difference) / heat.step >= each).length;
        const kind = difference < 0 ? "l" : group.waits[column] ? "b" : "w";
        const cell = el("td", { class: level ? `${kind}${level}` : null, "data-seconds": value });
        cell.about = [group.folded ? `${group.names[row.whose[column]]} on ${row.name}` : row.name, `: ${group.places[column]}\n`,
          `${duration(value)} a step; median ${duration(group.median[column])} (${signed(difference)})`].join("");
        return cell;
      }))));
    more.hidden = order.length <= shown;
    more.textContent = `Show more of ${order.length} rows`;
  }
  const holder = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}), heads)), body));
  tipped(holder, (event) => event.target.about || "");
  select.value = many ? "worst" : "rank";
  sort(select.value);
  const said = [];
  if (group.folded) said.push(`${group.rows.length} nodes; each cell is the worker there that is farthest from the median.`);
  if (group.left_rows) said.push(`${group.left_rows} rows with smaller deviations are left out.`);
  if (group.left_places) said.push(`${group.left_places} scopes with less time and smaller deviations are left out.`);
  return [
    el("div", { class: "tools" }, el("h3", {}, bdi(group.group)), order.length > 2 ? select : null),
    holder, more, said.length ? el("p", { class: "quiet" }, said.join(" ")) : ""];
}

// Merged trees: icicle and table

function drawTrees(root, run) {
  const trees = run.trees.trees;
  const of = Object.fromEntries(run.trees.columns.map((name, at) => [name, at]));
  const select = el("select", { "aria-label": "group", onchange: () => show(Number(select.value)) },
    trees.map((tree, at) => el("option", { value: at }, tree.name)));
  const search = el("input", { type: "search", placeholder: "search scopes", "aria-label": "search scopes" });
  const holder = el("div"), icicle = el("div", { class: "icicle" }), list = el("div");
  root.append(el("div", { class: "tools" }, select, search), icicle, holder, list,
    el("p", { class: "quiet" }, "p50 and p95 a step: of a worker's time in a scope in a step, all its calls together; mean, min and max are of calls. slowest: the process that took longest, and its time. Steps that profiling slowed are left out."));
  let nodes = [], zoomed = null, width = 0;
  drawn(holder, (found) => { width = found; draw(); });

  function show(at) {
    const tree = trees[at];
    const path = [];
    const above = [];
    nodes = tree.rows.map((row) => {
      const depth = row[of.depth];
      path.length = depth;
      path[depth] = row[of.name];
      const node = { row, name: row[of.name], path: path.join("/"), depth, total: row[of.total], children: [], above: depth ? above[depth - 1] : null };
      above.length = depth;
      above[depth] = node;
      if (node.above) node.above.children.push(node);
      return node;
    });
    zoomed = null;
    const number = (name, cell, title) => ({ name, title, number: true, key: (node) => node.row[of[name.split(" ")[0]]], cell: (node) => cell(node.row[of[name.split(" ")[0]]]) });
    const indented = (node, asTree) => [asTree ? "\u2003".repeat(node.depth) : "", bdi(asTree ? node.row[of.name] : node.path)];
    const columns = [
      { name: "scope", key: (node) => node.path, cell: indented },
      number("calls", (value) => figure(value, String)), number("total", nanoseconds), number("mean", nanoseconds),
      number("p50 a step", seconds, "median of a worker's time in a step"), number("p95 a step", seconds, "95th percentile of a worker's time in a step"),
      number("min", nanoseconds), number("max", nanoseconds),
    ];
    if (nodes.some((node) => node.row[of.device] !== null)) columns.push(number("device", nanoseconds, "time between two events on the GPU's stream"));
    if (nodes.some((node) => node.row[of.open])) columns.push(number("open", (value) => figure(value, String), "scopes that had not ended"));
    if (tree.processes > 1) {
      columns.push({ name: "slowest", key: (node) => node.row[of.most],
        cell: (node) => (node.row[of.slowest] === null ? "" : [bdi(node.row[of.slowest]), " ", nanoseconds(node.row[of.most])]) });
    }
    const made = table(columns, nodes);
    search.oninput = () => {
      const wanted = search.value.trim().toLowerCase();
      made.search((node) => node.path.toLowerCase().includes(wanted));
    };
    search.oninput();
    list.replaceChildren(made.holder, tree.left ? el("p", { class: "quiet" }, `${tree.left} scopes with less time are left out.`) : "");
    draw();
  }

  function draw() {
    if (!width) return;
    icicle.replaceChildren(icicleOf(nodes, zoomed, width, 12, (node) => `${node.path}\n${duration(node.total / 1e9)}, ${node.row[of.calls]} calls`, (node) => {
      zoomed = node;
      draw();
    }));
  }
  select.value = String(run.trees.first);
  show(run.trees.first);
}

// Boxes inside boxes, as wide as their time; a click makes one the widest
function icicleOf(nodes, zoomed, width, most, about, zoom) {
  const shown = zoomed ? [zoomed] : nodes.filter((node) => !node.above);
  const deepest = (node) => node.children.reduce((most, child) => Math.max(most, deepest(child)), node.depth);
  const first = shown.length ? shown[0].depth : 0;
  const levels = Math.min(most, Math.max(0, ...shown.map(deepest)) - first + 1);
  const made = svg("svg", { ...sized(width, levels * 24 + 2), role: "img", "aria-label": "by time" });
  const texts = [];
  function put(some, from, size, level, whole) {
    if (level >= levels) return;
    const sum = some.reduce((all, node) => all + node.total, 0);
    const scale = size / Math.max(whole || sum, sum, 1);
    let at = from;
    for (const node of [...some].sort((one, other) => other.total - one.total)) {
      const wide = node.total * scale;
      if (wide < 0.7) continue;
      const rect = svg("rect", { class: `c${hue(node.name)}`, x: at, y: level * 24 + 1, width: wide, height: 23 });
      rect.about = about(node);
      rect.node = node;
      made.append(rect);
      const fits = Math.floor((wide - 6) / 6.7);
      if (fits > 2) texts.push(svg("text", { class: "in", x: at + 4, y: level * 24 + 16 }, node.name.length > fits ? `${node.name.slice(0, fits - 1)}…` : node.name));
      put(node.children, at, wide, level + 1, node.total);
      at += wide;
    }
  }
  put(shown, 0, width, 0, 0);
  made.append(...texts);
  made.addEventListener("click", (event) => {
    const node = event.target.node;
    if (node) zoom(node === zoomed ? node.above : node);
  });
  tipped(made, (event) => event.target.about || "");
  return made;
}

// What was seen to run: functions of a group or a rank, and what one takes longer than another

function drawStacks(root, run) {
  const { flames, names, left } = run.stacks;
  const select = el("select", { "aria-label": "whose functions", onchange: () => show() },
    flames.map((flame, at) => el("option", { value: at }, flame.name)));
  const other = el("select", { "aria-label": "more than whose", onchange: () => show() }, el("option", { value: "" }, "all of it"),
    flames.map((flame, at) => (flame.whole ? el("option", { value: at }, `more than ${flame.name}`) : "")));
  const holder = el("div"), icicle = el("div", { class: "icicle" });
  root.append(el("div", { class: "tools" }, select, other), icicle, holder,
    el("p", { class: "quiet" }, `Time a step, from samples of stacks; the way into each scope is left out. gpuprof report --stacks speedscope --by rank has all.${left ? ` ${left} more trees had no room here.` : ""}`));
  let nodes = [], zoomed = null, width = 0;
  drawn(holder, (found) => { width = found; draw(); });

  // A key for each row: it and the rows that it is in
  function paths(rows) {
    const path = [];
    return rows.map(([depth, name]) => {
      path.length = depth;
      path[depth] = name;
      return path.join();
    });
  }

  // What rows have more than others, with the rows that it is in
  function more(rows, others) {
    const theirs = new Map(), keys = paths(rows), kept = [];
    paths(others).forEach((key, at) => theirs.set(key, others[at][2]));
    const extra = rows.map(([depth, name, total], at) => [depth, name, Math.max(0, total - (theirs.get(keys[at]) || 0))]);
    const whole = extra.reduce((sum, [depth, , total]) => sum + (depth ? 0 : total), 0);
    let depth = 0;
    for (const row of extra.reverse()) {
      if (row[2] > 0.002 * whole || row[0] < depth) {
        kept.push(row);
        depth = row[0];
      }
    }
    return kept.reverse();
  }

  function show() {
    const above = [], chosen = flames[Number(select.value)];
    other.disabled = !chosen.whole;
    if (!chosen.whole) other.value = "";
    const rows = other.value === "" ? chosen.rows : more(chosen.rows, flames[Number(other.value)].rows);
    nodes = rows.map(([depth, name, total]) => {
      const node = { name: names[name], depth, total, children: [], above: depth ? above[depth - 1] : null };
      above.length = depth;
      above[depth] = node;
      if (node.above) node.above.children.push(node);
      return node;
    });
    zoomed = null;
    draw();
  }

  function draw() {
    if (!width) return;
    if (!nodes.length) {
      icicle.replaceChildren(el("p", { class: "quiet" }, "Nothing takes longer."));
      return;
    }
    icicle.replaceChildren(icicleOf(nodes, zoomed, width, 24, (node) => `${node.name}\n${duration(node.total / 1e9)} a step`, (node) => {
      zoomed = node;
      draw();
    }));
  }
  show();
}

function hue(name) {
  let found = 7;
  for (const sign of name) found = (found * 31 + sign.codePointAt(0)) % 1000003;
  return found % 10;
}

// Ranges of the windows

function drawRanges(root, run) {
  run.ranges.windows.forEach((window, at) => {
    const ranks = window.ranks.length ? `, rank${window.ranks.length > 1 ? "s" : ""} ${window.ranks.slice(0, 12).join(", ")}${window.ranks.length > 12 ? " …" : ""}` : "";
    const title = `${window.group ? `${window.group}, ` : ""}${window.window}${ranks}${window.seconds ? `: ${duration(window.seconds)}` : ""}`;
    const about = el("details", {}, el("summary", {}, el("bdi", {}, title)));
    about.addEventListener("toggle", () => {
      if (about.open && about.children.length === 1) about.append(...rangesOf(window));
    });
    if (at === 0) about.open = true;
    root.append(about);
  });
  if (run.ranges.left) root.append(el("p", { class: "quiet" }, `${run.ranges.left} more windows: gpuprof report --nvtx`));
}

function rangesOf(window) {
  const number = (name, column, cell) => ({ name, number: true, key: (row) => row[column], cell: (row) => cell(row[column]) });
  const made = table([
    { name: "range", key: (row) => row[1], cell: (row, asTree) => [asTree ? "\u2003".repeat(row[0]) : "", bdi(row[1])] },
    number("count", 2, (value) => figure(value, String)), number("total", 3, nanoseconds), number("min", 4, nanoseconds), number("max", 5, nanoseconds), number("share", 6, share),
    ...window.kinds.map((kind, at) => number(kind, 7 + at, nanoseconds)),
  ], window.rows);
  made.holder.classList.add("tall");
  return [made.holder, window.left ? el("p", { class: "quiet" }, `${window.left} more ranges: gpuprof report --nvtx`) : ""];
}

// Samples of one step: the tail first, and below it when each worker had one

const PHASES = { generate: "c0", tool: "c1", reward: "c2", trained: "c4", queued: "wait", buffered: "wait" };
const phaseClass = (name) => PHASES[name] || `c${5 + (hue(name) % 5)}`;

function drawSamples(root, run) {
  const { steps, names, workers } = run.samples;
  const select = el("select", { "aria-label": "step of the samples", onchange: () => { current = steps[Number(select.value)]; show(); } },
    steps.map((step, at) => el("option", { value: at }, `step ${step.step} · ${duration(step.seconds)}${step.why === "chosen" ? "" : ` · ${step.why}`}`)));
  const first = Math.max(0, steps.findIndex((step) => step.why === "median"));
  const said = el("p"), note = el("p", { class: "quiet" }), holder = el("div");
  let current = steps[first], width = 0;
  select.value = first;
  const used = [...new Set(steps.flatMap((step) => step.rows.flatMap((row) => row.phases.filter((_, at) => at % 5 === 0))))];
  root.append(el("div", { class: "tools" }, select), said, holder,
    legend(...used.map((name) => [phaseClass(names[name]), names[name]]), ["idle", "the worker has no sample"]), note);
  drawn(holder, (found) => { width = found; show(); });

  function show() {
    if (!width) return;
    const per = (share) => (share < 1 ? `${Math.round(100 * share)} %` : "all");
    said.textContent = `${current.count} samples. Done: ${current.shares.map((each, at) => `${per(each)} after ${duration(current.done[at] / 1e9)}`).join(", ")}.`;
    const left = [];
    if (current.left) left.push(`${current.left} samples that were done earlier are not drawn`);
    if (current.workers_left) left.push(`nor are ${current.workers_left} workers that became idle earlier`);
    note.textContent = left.length ? `${left.join(", ")}.` : "";
    holder.replaceChildren(picture());
  }

  function picture() {
    const labels = width < 480 ? 84 : 150, thick = 9, wide = width - labels;
    const length = current.seconds * 1e9;
    const top = 32, between = 24, base = top + current.rows.length * thick + between;
    const height = base + current.workers.length * 14 + 4;
    const x = (time) => labels + (Math.min(time, length) / length) * wide;
    const made = svg("svg", { ...sized(width, height), role: "img", "aria-label": `samples of step ${current.step}` });
    for (const value of ticks(current.seconds, Math.max(2, wide / 130))) {
      made.append(svg("line", { class: "grid", x1: x(value * 1e9), x2: x(value * 1e9), y1: 16, y2: height }));
      if (x(value * 1e9) < width - 40) made.append(svg("text", { x: x(value * 1e9) + 2, y: 12 }, value ? duration(value) : "0"));
    }
    const label = (text, y, kind) => made.append(svg("text", { x: labels - 6, y, "text-anchor": "end", class: kind || null },
      text.length > labels / 6 ? `${text.slice(0, labels / 6 - 1)}…` : text));
    label("tail first", top - 4);
    current.rows.forEach((row, number) => {
      const y = top + number * thick;
      const depths = [];
      for (let at = 0; at < row.phases.length; at += 5) {
        const [name, worker, start, size, ended] = row.phases.slice(at, at + 5);
        while (depths.length && depths[depths.length - 1] <= start) depths.pop();
        const inset = Math.min(depths.length, 2) * 2.5;
        depths.push(start + size);
        const rect = svg("rect", { class: `span ${phaseClass(names[name])}`, x: x(start), y: y + inset, width: Math.max(0.8, x(start + size) - x(start)), height: thick - 1 - inset });
        rect.about = `${row.id}: ${names[name]}${ended ? "" : " (never ended)"}, ${workers[worker]}\n${duration(size / 1e9)}, from ${duration(start / 1e9)}${row.tokens ? `\n${row.tokens} tokens in all` : ""}`;
        made.append(rect);
      }
    });
    label("workers", base - 6);
    current.workers.forEach(([worker, stretches], number) => {
      const y = base + number * 14;
      made.append(svg("rect", { class: "idle", x: labels, y, width: wide, height: 11 }));
      for (let at = 0; at < stretches.length; at += 2) {
        made.append(svg("rect", { class: "c0", x: x(stretches[at]), y, width: Math.max(0.8, x(stretches[at + 1]) - x(stretches[at])), height: 11 }));
      }
      const last = stretches[stretches.length - 1];
      const bar = svg("rect", { fill: "transparent", x: labels, y, width: wide, height: 11 });
      bar.about = `${workers[worker]}: its last sample was done after ${duration(last / 1e9)}`;
      made.append(bar);
      label(workers[worker], y + 9);
    });
    let before = -100;
    current.done.forEach((time, at) => {
      if (time > length) return;
      made.append(svg("line", { class: "median", x1: x(time), x2: x(time), y1: 18, y2: height }));
      const text = current.shares[at] < 1 ? `${Math.round(100 * current.shares[at])} %` : "all";
      if (x(time) - before > 34) made.append(svg("text", { class: "strong", x: Math.min(x(time), width - 16), y: 26, "text-anchor": "middle" }, text));
      before = x(time);
    });
    tipped(made, (event) => event.target.about || "");
    return made;
  }
}

// The whole page

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));

for (const [number, run] of data.runs.entries()) {
  const side = (name) => document.querySelector(`[data-run="${number}"][data-draw="${name}"]`);
  const has = (name) => !("why" in run[name]);
  let mark = () => {}, show = () => {};
  const chooseDrawn = (at) => {
    mark(run.steps.drawn.indexOf(at));
    show(at, null);
  };
  const choose = (bar) => {
    let nearest = -1;
    run.steps.drawn.forEach((at, each) => {
      if (at >= 0 && (nearest < 0 || Math.abs(each - bar) < Math.abs(nearest - bar))) nearest = each;
    });
    mark(nearest < 0 ? bar : nearest);
    if (nearest >= 0) show(run.steps.drawn[nearest], run.steps.number[bar]);
  };
  if (has("steps")) mark = drawSteps(side("steps"), run, choose);
  if (has("gantt") && has("steps")) {
    show = drawGantt(side("gantt"), run, chooseDrawn);
    const median = run.gantt.steps.findIndex((step) => step.why === "median");
    chooseDrawn(Math.max(0, median));
  }
  if (has("samples") && side("samples")) drawSamples(side("samples"), run);
  if (has("heat")) drawHeat(side("heat"), run);
  if (has("trees")) drawTrees(side("trees"), run);
  if (has("stacks")) drawStacks(side("stacks"), run);
  if (has("ranges")) drawRanges(side("ranges"), run);
}
