// The page of a report: bytes over steps and the map of the arena, over the same steps.
//
// One state, three levels of drawing: `redraw` when the window of steps and bytes, the arena or the
// search changed; `mark` when only the pointer, the pinned storage or the chosen step did; `tell`
// fills the side. Names come from model files and are hostile: they are only ever set as text.
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const { steps, storages, figures } = report;
  const KINDS = ["input", "output", "copy", "intermediate", "workspace"];
  const SVG_LIMIT = 3000; // rectangles; above that a canvas is faster
  const LABELS = 400; // names written into rectangles at one time
  const ROWS = 200; // rows of the table of holders
  const EDGE = { left: 68, right: 14, top: 20, bottom: 22 };

  // ---- Elements and numbers ------------------------------------------------------------------

  const $ = (id) => document.getElementById(id);

  function make(tag, attrs = {}, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs)) k === "class" ? (e.className = v) : e.setAttribute(k, v);
    e.append(...children);
    return e;
  }

  function shape(tag, attrs, text) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    if (text !== undefined) e.textContent = text;
    return e;
  }

  const grouped = (n) => String(n).replace(/\B(?=(\d{3})+(?=$|\.))/g, "\u202f");
  const exact = (bytes) => `${grouped(bytes)} bytes`;

  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  function human(bytes) {
    let unit = 0;
    while (bytes >= (unit ? 1023.95 : 1024) && unit < 6) (bytes /= 1024), unit++;
    return `${unit ? bytes.toFixed(1) : bytes} ${UNITS[unit]}`;
  }

  // Marks on an axis of bytes, `step` apart: all in one unit, so that none needs rounding.
  function ticks(lo, hi, step) {
    const unit = clamp(Math.floor((Math.log2(step) + 2) / 10), 0, 6), out = [];
    for (let b = Math.ceil(lo / step) * step; b <= hi; b += step) out.push([b, `${grouped(b / 1024 ** unit)} ${UNITS[unit]}`]);
    return out;
  }

  const percent = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(1)} %`;
  const count = (n, one, many = `${one}s`) => `${n ? grouped(n) : "no"} ${n === 1 ? one : many}`;
  const clamp = (x, lo, hi) => Math.max(lo, Math.min(hi, x));

  // Control characters, and marks that turn the order of what stands around them, are not shown.
  const plain = (name) => name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");

  // The middle of a long name says least.
  function shorten(name, room) {
    if (name.length <= room) return plain(name);
    if (room < 3) return "";
    // Cut at whole characters, not in the middle of a surrogate pair.
    const half = (room - 1) / 2, head = [...name.slice(0, room)], tail = [...name.slice(-room)];
    return plain(`${head.slice(0, Math.floor(half)).join("")}…${tail.slice(-Math.ceil(half)).join("")}`);
  }

  const spans = (life) => life.map((s) => (s.first === s.last ? `${s.first}` : `${s.first}–${s.last}`)).join(", ");
  const held = (storage, step) => storage.life.some((s) => s.first <= step && step <= s.last);

  // What a storage is called at a step: the last of its members that has been made by then.
  function memberAt(storage, step) {
    const m = storage.members;
    for (let i = m.length - 1; i > 0; i--) if (m[i].made === null || m[i].made <= step) return m[i];
    return m[0] || { name: "unnamed", dtype: "", shape: "", producer: "", last_reader: "" };
  }

  const typed = (member) => [member.dtype, member.shape].filter(Boolean).join(" ");

  // ---- State ---------------------------------------------------------------------------------

  let arena, items, byKind, full, view; // the arena that is shown
  let chosen = 0; // step
  let pinned = null, hovered = null; // items
  let pointer = null; // {step} under the pointer
  let found = null; // Set of storage numbers, or null without a search

  function choose(index) {
    arena = report.arenas[index];
    items = [];
    byKind = KINDS.map(() => new Float64Array(steps.length + 1));
    storages.forEach((storage, id) => {
      if (storage.arena !== index || !storage.size) return;
      const kind = KINDS.indexOf(storage.kind);
      for (const { first, last } of storage.life) {
        items.push({ id, storage, kind, x0: first, x1: last + 1, y0: storage.offset, y1: storage.offset + storage.size, tone: id % 3 });
        byKind[kind][first] += storage.size;
        byKind[kind][last + 1] -= storage.size;
      }
    });
    for (const sums of byKind) for (let i = 1; i < sums.length; i++) sums[i] += sums[i - 1];
    items.sort((a, b) => a.x0 - b.x0 || a.y0 - b.y0);
    full = { x0: 0, x1: Math.max(1, steps.length), y0: 0, y1: Math.max(1, arena.size) };
    view = { ...full };
    pinned = hovered = null;
    chosen = arena.peak ? arena.peak.step : 0;
    map.paint = items.length > SVG_LIMIT ? canvasPaint : svgPaint();
    map.canvas.hidden = map.paint !== canvasPaint;
  }

  // ---- The two pictures ----------------------------------------------------------------------

  function picture(id, layers) {
    const box = $(id), svg = shape("svg", {}), p = { box, svg };
    p.canvas = make("canvas", { hidden: "" });
    box.append(p.canvas, svg);
    for (const name of layers) svg.append((p[name] = shape("g", {})));
    return p;
  }
  const load = picture("load", ["ground", "rects", "axis", "marks"]);
  const map = picture("map", ["ground", "rects", "names", "axis", "marks"]);
  let mono = 6.4; // pixels of one character of a name

  function measure(p) {
    const { width, height } = p.box.getBoundingClientRect();
    Object.assign(p, { w: width, h: height, left: EDGE.left, top: p === load ? EDGE.top : 6 });
    p.iw = Math.max(1, width - EDGE.left - EDGE.right);
    p.ih = Math.max(1, height - p.top - EDGE.bottom);
  }
  const px = (p, step) => p.left + ((step - view.x0) / (view.x1 - view.x0)) * p.iw;
  const py = (byte) => map.top + map.ih - ((byte - view.y0) / (view.y1 - view.y0)) * map.ih;
  const stepAt = (p, x) => view.x0 + ((x - p.left) / p.iw) * (view.x1 - view.x0);
  const byteAt = (y) => view.y0 + ((map.top + map.ih - y) / map.ih) * (view.y1 - view.y0);
  const loadTop = () => Math.max(arena.size, 1) * 1.04;
  const ly = (bytes) => load.top + load.ih * (1 - bytes / loadTop());

  function axes(p, y, y0, y1) {
    p.ground.replaceChildren(shape("rect", { class: "ground", x: p.left, y: p.top, width: p.iw, height: p.ih }));
    p.axis.replaceChildren();
    const step = 2 ** Math.ceil(Math.log2(Math.max(1, (y1 - y0) / Math.max(2, p.ih / 46))));
    for (const [b, label] of ticks(y0, y1, step)) {
      p.ground.append(shape("line", { class: "grid", x1: p.left, x2: p.left + p.iw, y1: y(b), y2: y(b) }));
      p.axis.append(shape("text", { x: p.left - 8, y: y(b) + 4, "text-anchor": "end" }, label));
    }
    const most = Math.max(2, p.iw / 76), raw = Math.max(1, (view.x1 - view.x0) / most), ten = 10 ** Math.floor(Math.log10(raw));
    const unit = [1, 2, 5, 10].map((m) => m * ten).find((s) => s >= raw);
    for (let s = Math.ceil(view.x0 / unit) * unit; s < view.x1; s += unit) {
      const x = px(p, s + 0.5);
      if (x <= p.left + p.iw) p.axis.append(shape("text", { x, y: p.top + p.ih + 15, "text-anchor": "middle" }, grouped(s)));
    }
  }

  function drawLoad() {
    axes(load, ly, 0, loadTop());
    load.rects.replaceChildren();
    // A column is the step of greatest load among those that share its pixel.
    const columns = [], per = (view.x1 - view.x0) / load.iw;
    const first = Math.floor(view.x0), end = Math.min(steps.length, Math.ceil(view.x1));
    for (let s = first; s < end; ) {
      const stop = per > 1 ? Math.min(end, Math.max(s + 1, Math.floor(s + per))) : s + 1;
      let best = s;
      for (let i = s + 1; i < stop; i++) if (arena.load[i] > arena.load[best]) best = i;
      columns.push([Math.max(load.left, px(load, s)), Math.min(load.left + load.iw, px(load, stop)), best]);
      s = stop;
    }
    const below = new Float64Array(columns.length);
    const paths = KINDS.map((kind, k) => {
      let d = `M${load.left} ${ly(0)}`, any = false;
      columns.forEach(([x0, x1, step], i) => {
        const bytes = byKind[k][step];
        any = any || bytes > 0;
        below[i] += bytes;
        const y = ly(below[i]).toFixed(2);
        d += `L${x0.toFixed(2)} ${y}L${x1.toFixed(2)} ${y}`;
      });
      return any ? shape("path", { class: `k-${kind}`, d: `${d}V${ly(0)}Z` }) : null;
    });
    load.rects.append(...paths.filter(Boolean).reverse());
    const right = load.left + load.iw;
    const line = (bytes, label) => {
      load.axis.append(shape("line", { class: "bound", x1: load.left, x2: right, y1: ly(bytes), y2: ly(bytes) }));
      const late = arena.peak && px(load, arena.peak.step + 0.5) > load.left + load.iw * 0.5;
      load.axis.append(shape("text", { class: "bound-label", x: late ? load.left : right, y: load.top - 7, "text-anchor": late ? "start" : "end" }, label));
    };
    line(arena.lower_bound, `lower bound ${human(arena.lower_bound)}${arena.size === arena.lower_bound ? ", reached" : ""}`);
    if (arena.peak) {
      const x = px(load, arena.peak.step + 0.5), y = ly(arena.peak.bytes);
      if (x >= load.left && x <= right) {
        load.axis.append(shape("path", { class: "peak", d: `M${x} ${y - 1}l-5 -8h10z` }));
        const anchor = x < load.left + 90 ? "start" : x > right - 90 ? "end" : "middle";
        load.axis.append(shape("text", { class: "peak", x, y: load.top - 9, "text-anchor": anchor }, `peak ${human(arena.peak.bytes)} · step ${grouped(arena.peak.step)}`));
      }
    }
  }

  // The rectangle of an item in pixels, cut to the plot; null when it is outside. Items that are
  // wide enough keep a gap to their neighbours.
  function box(item) {
    const x0 = Math.max(map.left, px(map, item.x0)), x1 = Math.min(map.left + map.iw, px(map, item.x1));
    const y0 = Math.max(map.top, py(item.y1)), y1 = Math.min(map.top + map.ih, py(item.y0));
    if (x1 <= x0 || y1 <= y0) return null;
    const gx = x1 - x0 > 4 ? 0.5 : 0, gy = y1 - y0 > 4 ? 0.5 : 0;
    return { x: x0 + gx, y: y0 + gy, w: Math.max(0.75, x1 - x0 - 2 * gx), h: Math.max(0.75, y1 - y0 - 2 * gy) };
  }

  const faded = (item) => found !== null && !found.has(item.id);

  // What fits into so many characters: the name, or only what kind of node made it.
  function caption(member, room) {
    const wide = /[^\x20-\x7e]/.test(member.name) ? 2 : 1, op = / \(([^()]*)\)$/.exec(member.producer.slice(-60));
    if (member.name.length * wide <= room || room >= 16) return shorten(member.name, Math.floor(room / wide));
    return op && op[1].length <= room ? op[1] : "";
  }

  // Names for the biggest of the rectangles that have room for one: along them, or upwards.
  function captions(boxes) {
    const room = boxes.filter(([, b]) => Math.min(b.w, b.h) > 12 && Math.max(b.w, b.h) > 30);
    room.sort((a, b) => b[1].w * b[1].h - a[1].w * a[1].h);
    return room.slice(0, LABELS).map(([item, b]) => {
      const member = memberAt(item.storage, item.x0), along = caption(member, (b.w - 9) / mono);
      const up = b.h > 1.5 * b.w && b.h > 60 ? caption(member, (b.h - 10) / mono) : "";
      if (up.length > along.length) return { item, x: b.x + Math.min(b.w / 2, 11) + 3.5, y: b.y + b.h - 5, turn: -90, text: up };
      return { item, x: b.x + 5, y: b.y + Math.min(b.h / 2, 12) + 3.5, turn: 0, text: along };
    });
  }

  function svgPaint() {
    const nodes = items.map((item) => shape("rect", { class: `k-${KINDS[item.kind]} t${item.tone}`, "data-storage": item.id }));
    map.rects.replaceChildren(...nodes);
    return () => {
      const boxes = [];
      items.forEach((item, i) => {
        const b = box(item), node = nodes[i];
        node.setAttribute("display", b ? "inline" : "none");
        if (!b) return;
        node.setAttribute("x", b.x), node.setAttribute("y", b.y), node.setAttribute("width", b.w), node.setAttribute("height", b.h);
        node.classList.toggle("faded", faded(item));
        boxes.push([item, b]);
      });
      const text = (c) => shape("text", { class: faded(c.item) ? "name faded" : "name", transform: `translate(${c.x} ${c.y}) rotate(${c.turn})` }, c.text);
      map.names.replaceChildren(...captions(boxes).map(text));
    };
  }

  function canvasPaint() {
    const ratio = window.devicePixelRatio || 1, c = map.canvas, g = c.getContext("2d");
    if (map.rects.firstChild) map.rects.replaceChildren();
    c.width = Math.round(map.w * ratio), c.height = Math.round(map.h * ratio);
    g.scale(ratio, ratio);
    const css = getComputedStyle(document.documentElement), color = (name) => css.getPropertyValue(`--${name}`).trim();
    g.fillStyle = color("plot");
    g.fillRect(map.left, map.top, map.iw, map.ih);
    // One pass a colour: changing it is what costs.
    const boxes = [], groups = new Map();
    for (const item of items) {
      if (item.x0 >= view.x1) break;
      const b = box(item);
      if (!b) continue;
      boxes.push([item, b]);
      const fill = KINDS[item.kind] + (KINDS[item.kind] === "intermediate" && item.tone ? `-${item.tone}` : "");
      const key = `${faded(item) ? 0 : 1} ${fill}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(b);
    }
    for (const [key, group] of [...groups].sort()) {
      const [on, fill] = key.split(" ");
      g.globalAlpha = on === "1" ? 1 : 0.13;
      g.fillStyle = color(fill);
      for (const b of group) g.fillRect(b.x, b.y, b.w, b.h);
    }
    g.font = `10.5px ${color("mono")}`;
    g.fillStyle = color("ink");
    for (const c of captions(boxes)) {
      g.globalAlpha = faded(c.item) ? 0.13 : 1;
      g.save();
      g.translate(c.x, c.y);
      g.rotate((c.turn * Math.PI) / 180);
      g.fillText(c.text, 0, 0);
      g.restore();
    }
    map.names.replaceChildren();
  }

  function redraw() {
    measure(load), measure(map);
    const probe = document.createElement("canvas").getContext("2d");
    probe.font = `10.5px ${getComputedStyle(document.documentElement).getPropertyValue("--mono")}`;
    mono = probe.measureText("0123456789").width / 10 || mono;
    drawLoad();
    axes(map, py, view.y0, view.y1);
    map.ground.style.display = map.paint === canvasPaint ? "none" : "";
    map.paint();
    mark();
  }

  // Lines and outlines above the pictures.
  function mark() {
    for (const p of [load, map]) {
      p.marks.replaceChildren();
      const across = (step, attrs) => {
        const x0 = clamp(px(p, step), p.left, p.left + p.iw), x1 = clamp(px(p, step + 1), p.left, p.left + p.iw);
        if (x1 > x0) p.marks.append(shape("rect", { ...attrs, x: x0, y: p.top, width: Math.max(1, x1 - x0), height: p.ih }));
      };
      if (steps.length) across(chosen, { class: "column" });
      if (pointer && pointer.step >= view.x0 && pointer.step < view.x1) {
        const x = clamp(px(p, pointer.step + 0.5), p.left, p.left + p.iw);
        p.marks.append(shape("line", { class: "cross", x1: x, x2: x, y1: p.top, y2: p.top + p.ih }));
      }
      if (p.brush) p.marks.append(shape("rect", { class: "brush", x: Math.min(...p.brush), y: p.top, width: Math.abs(p.brush[1] - p.brush[0]), height: p.ih }));
    }
    const outline = (one, style) => {
      for (const item of items.filter((i) => one && i.id === one.id)) {
        const b = box(item);
        if (b) map.marks.append(shape("rect", { class: `outline ${style}`, x: b.x, y: b.y, width: b.w, height: b.h }));
      }
    };
    outline(hovered, ""), outline(pinned, "pinned");
  }

  // Pictures change at most once a frame.
  let due = null;
  function later(draw) {
    if (due === null) requestAnimationFrame(() => { const d = due; due = null; d(); });
    if (due !== redraw) due = draw;
  }

  // ---- The side ------------------------------------------------------------------------------

  const bdi = (text) => make("bdi", {}, plain(text));
  const pairs = (rows) => rows.flatMap(([k, v, title]) => [make("dt", {}, k), make("dd", title ? { title } : {}, v)]);

  function tell() {
    const step = steps[chosen], [title, node, sum] = $("step").children;
    title.textContent = step ? `Step ${grouped(chosen)} of ${grouped(steps.length)}` : "Nothing to run";
    node.replaceChildren(bdi(step ? step.node + (step.phase === "run" ? "" : ` (${step.phase})`) : ""));
    const bytes = arena.load[chosen] || 0;
    const list = storages.map((s, id) => id).filter((id) => storages[id].arena === report.arenas.indexOf(arena) && storages[id].size && held(storages[id], chosen));
    list.sort((a, b) => storages[b].size - storages[a].size || a - b);
    sum.textContent = `${human(bytes)} in ${count(list.length, "storage")}, ${percent(bytes, arena.size)} of the arena`;
    sum.title = exact(bytes);
    const room = Math.floor(($("holders").clientWidth - 145) / mono / 1.15);
    $("holders").replaceChildren(...list.slice(0, ROWS).map((id) => {
      const s = storages[id], name = memberAt(s, chosen).name;
      const button = make("button", { title: shorten(name, 400) }, make("i", { class: `swatch k-${s.kind}` }), bdi(shorten(name, Math.max(12, room))));
      button.onclick = () => pin(id);
      const row = make("tr", pinned && pinned.id === id ? { class: "pinned" } : {}, make("td", {}, button));
      row.append(make("td", { title: exact(s.size) }, human(s.size)), make("td", {}, percent(s.size, bytes)));
      return row;
    }));
    $("more").textContent = list.length > ROWS ? `and ${count(list.length - ROWS, "smaller one")}` : "";

    const d = $("details");
    d.hidden = !pinned;
    if (!pinned) return;
    const s = pinned.storage, now = memberAt(s, chosen);
    const close = make("button", { "aria-label": "Let go", title: "Let go (Esc)" }, "✕");
    close.onclick = () => pin(null);
    const rows = [
      ["Kind", s.kind],
      ["Size", human(s.size), exact(s.size)],
      ["Bytes", `${grouped(s.offset)} to ${grouped(s.offset + s.size - 1)}`],
      ["Held", `${s.life.length > 1 || s.life[0].first !== s.life[0].last ? "steps" : "step"} ${spans(s.life)}`],
    ];
    const members = s.members.slice(0, 50).map((m) => make("li", {},
      bdi(m.name),
      make("span", { title: exact(m.bytes) }, [typed(m), human(m.bytes)].filter(Boolean).join(", ")),
      make("span", {}, "made by ", bdi(m.producer || "nobody")),
      make("span", {}, m.last_reader ? "last read by " : "read by nobody", bdi(m.last_reader))));
    if (s.members.length > 50) members.push(make("li", {}, `and ${s.members.length - 50} more`));
    d.replaceChildren(close, make("p", { class: "title" }, bdi(now.name)), make("dl", {}, ...pairs(rows)), make("ul", { class: "members" }, ...members));
  }

  function tip(item, step, x, y) {
    const t = $("tip");
    t.hidden = !item && step === null;
    if (t.hidden) return;
    if (item) {
      const s = item.storage, m = memberAt(s, step ?? item.x0), others = s.members.length - 1;
      const lines = [
        [[human(s.size), typed(m)].filter(Boolean).join(" · "), "strong"],
        [`${exact(s.size)} at offset ${grouped(s.offset)}, ${s.kind}`],
        [`held at ${spans(s.life.slice(0, 8))}${s.life.length > 8 ? ", …" : ""}`],
        [`made by ${shorten(m.producer || "nobody", 90)}`],
        [m.last_reader ? `last read by ${shorten(m.last_reader, 90)}` : "read by nobody"],
      ];
      if (others) lines.push([`shares its memory with ${count(others, "other value")}`]);
      t.replaceChildren(make("b", {}, bdi(shorten(m.name, 120))), ...lines.map(([text, c]) => make("p", { class: c || "" }, text)));
    } else {
      t.replaceChildren(make("b", {}, bdi(shorten(steps[step].node, 120))), make("p", { class: "strong" }, `step ${grouped(step)}: ${human(arena.load[step])}`), make("p", {}, exact(arena.load[step])));
    }
    const { width, height } = t.getBoundingClientRect();
    t.style.left = `${x + 18 + width > innerWidth ? Math.max(4, x - width - 14) : x + 18}px`;
    t.style.top = `${clamp(y + 16, 4, Math.max(4, innerHeight - height - 4))}px`;
  }

  // ---- What can be done ----------------------------------------------------------------------

  function select(step) {
    chosen = clamp(step, 0, Math.max(0, steps.length - 1));
    if (chosen < view.x0 || chosen >= view.x1) move(chosen + 0.5 - (view.x0 + view.x1) / 2, 0);
    tell(), later(mark);
  }

  function pin(id) {
    pinned = id === null ? null : items.find((i) => i.id === id && i.x0 <= chosen && chosen < i.x1) || items.find((i) => i.id === id) || null;
    tell(), later(mark);
  }

  // Brings a storage into the window, and the chosen step into its life.
  function show(id) {
    const item = items.find((i) => i.id === id);
    if (!item) return;
    if (!held(item.storage, chosen)) chosen = item.x0;
    const dx = item.x1 <= view.x0 || item.x0 >= view.x1 ? (item.x0 + item.x1 - view.x0 - view.x1) / 2 : 0;
    const dy = item.y1 <= view.y0 || item.y0 >= view.y1 ? (item.y0 + item.y1 - view.y0 - view.y1) / 2 : 0;
    move(dx, dy), pin(id);
  }

  function look(next) {
    const axis = (a, b, least) => {
      const lo = full[a], hi = full[b], size = clamp(next[b] - next[a], Math.min(least, hi - lo), hi - lo);
      const start = clamp((next[a] + next[b] - size) / 2, lo, hi - size);
      view[a] = start, view[b] = start + size;
    };
    axis("x0", "x1", 4), axis("y0", "y1", 64);
    later(redraw);
  }

  const move = (dx, dy) => look({ x0: view.x0 + dx, x1: view.x1 + dx, y0: view.y0 + dy, y1: view.y1 + dy });

  // Zooms by a factor about a point; a factor of 1 leaves its axis alone.
  function zoom(fx, fy, step = chosen + 0.5, byte = (view.y0 + view.y1) / 2) {
    look({ x0: step - (step - view.x0) * fx, x1: step + (view.x1 - step) * fx, y0: byte - (byte - view.y0) * fy, y1: byte + (view.y1 - byte) * fy });
  }

  // The item under a point, or the nearest within some pixels: thin ones can hardly be hit.
  function hit(x, y) {
    if (x < map.left || x > map.left + map.iw || y < map.top || y > map.top + map.ih) return null;
    const step = stepAt(map, x), byte = byteAt(y), sx = map.iw / (view.x1 - view.x0), sy = map.ih / (view.y1 - view.y0);
    let best = null, least = 4;
    for (const i of items) {
      if (i.x0 > step + least / sx) break;
      const far = Math.max((i.x0 - step) * sx, (step - i.x1) * sx, (i.y0 - byte) * sy, (byte - i.y1) * sy, 0);
      if (far < least) (best = i), (least = far);
      if (!far) break;
    }
    return best;
  }

  function search() {
    const text = $("search").value.trim().toLowerCase();
    found = text ? new Set(storages.flatMap((s, id) => (s.members.some((m) => m.name.toLowerCase().includes(text)) ? [id] : []))) : null;
    $("found").textContent = found ? `${grouped(found.size)} of ${count(storages.length, "storage")}` : "";
    later(redraw);
  }

  function nextFound(by) {
    const list = [...(found || [])];
    if (list.length) show(list[(list.indexOf(pinned ? pinned.id : -1) + (by < 0 && !pinned ? 0 : by) + list.length) % list.length]);
  }

  // The storage above or below the pinned one at the chosen step.
  function climb(by) {
    const here = items.filter((i) => i.x0 <= chosen && chosen < i.x1).sort((a, b) => a.y0 - b.y0);
    if (!here.length) return;
    const at = here.findIndex((i) => pinned && i.id === pinned.id);
    show(here[at < 0 ? (by > 0 ? 0 : here.length - 1) : clamp(at + by, 0, here.length - 1)].id);
  }

  function listen(p) {
    let from = null;
    const at = (e) => { const r = p.box.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    p.box.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      const [x, y] = at(e);
      from = { x, y, view: { ...view }, moved: false };
      p.box.setPointerCapture(e.pointerId);
    });
    p.box.addEventListener("pointermove", (e) => {
      const [x, y] = at(e), inside = x >= p.left && x <= p.left + p.iw && steps.length > 0;
      const step = clamp(Math.floor(stepAt(p, x)), 0, steps.length - 1);
      pointer = inside ? { step } : null;
      if (from && Math.hypot(x - from.x, y - from.y) > 4) from.moved = true;
      if (from && from.moved && p === map) {
        const dx = ((from.x - x) / p.iw) * (view.x1 - view.x0), dy = ((y - from.y) / p.ih) * (view.y1 - view.y0), v = from.view;
        map.box.classList.add("moving");
        hovered = null;
        look({ x0: v.x0 + dx, x1: v.x1 + dx, y0: v.y0 + dy, y1: v.y1 + dy });
        return tip(null, null);
      }
      if (from && from.moved) p.brush = [clamp(from.x, p.left, p.left + p.iw), clamp(x, p.left, p.left + p.iw)];
      hovered = p === map ? hit(x, y) : null;
      tip(hovered, inside ? step : null, e.clientX, e.clientY);
      later(mark);
    });
    p.box.addEventListener("pointerup", (e) => {
      const [x, y] = at(e), start = from;
      from = null;
      map.box.classList.remove("moving");
      if (p.brush) {
        const [a, b] = p.brush.map((v) => stepAt(p, v));
        p.brush = null;
        look({ ...view, x0: Math.min(a, b), x1: Math.max(a, b) });
      } else if (start && !start.moved && pointer) {
        const item = p === map ? hit(x, y) : null;
        select(pointer.step);
        if (p === map) pin(item ? item.id : null);
      }
    });
    const leave = () => { pointer = hovered = null; tip(null, null); later(mark); };
    p.box.addEventListener("pointerleave", leave);
    p.box.addEventListener("pointercancel", () => { from = p.brush = null; leave(); });
    p.box.addEventListener("dblclick", () => look({ ...full }));
    p.box.addEventListener("wheel", (e) => {
      e.preventDefault();
      const [x, y] = at(e);
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY) && !e.shiftKey) return move((e.deltaX / p.iw) * (view.x1 - view.x0), 0);
      const f = Math.exp(clamp((e.deltaY || e.deltaX) * (e.deltaMode ? 0.05 : 0.0015), -1, 1));
      zoom(e.altKey ? 1 : f, p === load || e.shiftKey ? 1 : f, stepAt(p, x), byteAt(y));
    }, { passive: false });
  }

  const onMap = {
    ArrowLeft: () => select(chosen - 1),
    ArrowRight: () => select(chosen + 1),
    ArrowUp: () => climb(1),
    ArrowDown: () => climb(-1),
    Home: () => select(0),
    End: () => select(steps.length - 1),
    Enter: () => (pinned ? pin(null) : climb(1)),
  };
  const anywhere = {
    "/": () => $("search").focus(),
    "+": () => zoom(0.6, 0.6),
    "=": () => zoom(0.6, 0.6),
    "-": () => zoom(1 / 0.6, 1 / 0.6),
    0: () => look({ ...full }),
    p: () => select(arena.peak ? arena.peak.step : 0),
    Escape: () => pin(null),
  };

  // ---- The heading, and the start ------------------------------------------------------------

  function heading() {
    const { model } = report, first = report.arenas[0];
    $("name").textContent = plain(model.name) || "Memory plan";
    $("about").textContent = [model.format, count(model.nodes, "node"), count(model.values, "value"), figures.strategy].filter(Boolean).join(" · ");
    const gap = first.size - first.lower_bound, b = figures.bytes;
    const cells = [
      ["Arena", first.size, first.proven_optimal ? "proven the least" : gap ? `the bound is ${percent(gap, first.size)} lower` : "at the lower bound", "first"],
      ["Side by side", first.no_reuse, `sharing saves ${percent(first.no_reuse - first.size, first.no_reuse)}`],
      ["Intermediates", b.intermediates, b.workspaces ? `workspaces ${human(b.workspaces)}` : "no workspaces"],
      ["Inputs", b.inputs, `outputs ${human(b.outputs)}`],
      ["Constants", b.constants, "outside the arena"],
      ["Storages", null, `${count(figures.in_place, "value")} in place`, "", grouped(figures.storages)],
      ["Copies", null, figures.copies.inserted ? human(figures.copies.bytes) : "none needed", "", grouped(figures.copies.inserted)],
      ["Check", null, figures.check.accesses ? count(figures.check.accesses, "access", "accesses") : "", "", figures.check.passed ? "passed" : "not run"],
    ];
    if (figures.dynamic_values) cells.push(["Dynamic", null, "size known at run time", "", count(figures.dynamic_values, "value")]);
    for (const [name, bytes, note, style = "", text] of cells) {
      const good = name === "Arena" && first.proven_optimal ? " good" : "";
      const value = make("dd", bytes === null ? {} : { title: exact(bytes) }, text || human(bytes));
      $("figures").append(make("div", style ? { class: style } : {}, make("dt", {}, name), value, make("dd", { class: `note${good}` }, note)));
    }
    for (const kind of KINDS) {
      if (storages.some((s) => s.kind === kind)) $("legend").append(make("li", {}, make("i", { class: `swatch k-${kind}` }), kind));
    }
    const w = $("warnings");
    w.hidden = !report.warnings.length;
    w.firstElementChild.textContent = count(report.warnings.length, "warning");
    w.lastElementChild.append(...report.warnings.slice(0, 100).map((text) => make("li", {}, bdi(text))));
  }

  if (!report.arenas.length) report.arenas.push({ kind: "device", size: 0, align: 1, lower_bound: 0, proven_optimal: true, no_reuse: 0, load: steps.map(() => 0), peak: null, holders: [] });
  heading();
  choose(0);
  report.arenas.forEach((a, i) => $("arena").append(make("option", { value: i }, `${a.kind}: ${human(a.size)}`)));
  $("arena").hidden = report.arenas.length < 2;
  $("arena").onchange = (e) => { choose(Number(e.target.value)); tell(); redraw(); };
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (e) => {
    if (e.key === "Enter") nextFound(e.shiftKey ? -1 : 1);
    if (e.key === "Escape") (e.target.value = ""), search(), map.box.focus();
  });
  $("peak").onclick = anywhere.p;
  $("closer").onclick = anywhere["+"];
  $("farther").onclick = anywhere["-"];
  $("whole").onclick = anywhere[0];
  listen(load), listen(map);
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT)$/.test(e.target.tagName)) return;
    const act = anywhere[e.key.length === 1 ? e.key.toLowerCase() : e.key] || (e.target === map.box ? onMap[e.key] : null);
    if (act) e.preventDefault(), act();
  });
  new ResizeObserver(() => (tell(), later(redraw))).observe(map.box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => later(redraw));
  redraw();
  tell();
})();
