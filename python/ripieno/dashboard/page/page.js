// The page that shows the state from the launching process. It listens to events; where a proxy blocks them, it polls.
"use strict";

const byId = id => document.getElementById(id);
const number = value => {
  const size = Math.abs(value), steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  if (value && (size < 1e-3 || size >= 1e15)) return value.toExponential(1).replace("e+", "e");
  const [factor, unit] = steps.find(each => size >= each[0]) || [1, ""];
  return `${Number((value / (factor === 1e4 ? 1e3 : factor)).toPrecision(4))}${unit && " " + unit}`;
};
const bytes = size => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (size >= 999.5 && at < units.length - 1) { size /= 1000; at++; }
  return `${at ? Number(size.toPrecision(3)) : Math.round(size)} ${units[at]}`;
};
const seconds = value => value < 1 ? `${Number((value * 1000).toPrecision(2))} ms` : `${Number(value.toPrecision(3))} s`;
const duration = at => {
  const total = Math.round(at), h = Math.floor(total / 3600), m = Math.floor(total % 3600 / 60), s = total % 60;
  const two = value => String(value).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)}` : m ? `${m}:${two(s)}` : `${s} s`;
};

const history = { width_s: 0, rankCount: 0, waiting: [], communicating: [], memory: [] };
let board = null, chosen = null, placed = null, stopped = false, before = null, now = null;
const MOST_LINES = 1000;

function decode(text) { return Uint8Array.from(atob(text), each => each.charCodeAt(0)); }

function takeHistory(part) {
  if (part.width_s !== history.width_s || part.first === 0) {
    history.waiting = []; history.communicating = []; history.memory = [];
    history.width_s = part.width_s;
  }
  const length = part.until - part.first;
  for (const name of ["waiting", "communicating"]) {
    const all = decode(part[name]);
    history.rankCount = length ? all.length / length : history.rankCount;
    for (let rank = 0; rank < history.rankCount; rank++) {
      const row = history[name][rank] = history[name][rank] || [];
      for (let bin = 0; bin < length; bin++) row[part.first + bin] = all[rank * length + bin];
    }
  }
  part.memory.forEach((value, at) => { history.memory[part.first + at] = value; });
}

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function table(id, heads, rows, fill) {
  const made = document.createElement("table").createTBody(), head = document.createElement("thead").insertRow();
  for (const [text, kind] of heads) {
    const each = document.createElement("th");
    each.textContent = text;
    if (kind) each.className = kind;
    head.append(each);
  }
  rows.forEach(row => fill(made.insertRow(), row));
  byId(id).replaceChildren(head.parentElement, made);
}

function bar(row, share) {
  const made = document.createElement("span");
  made.className = "bar";
  made.style.width = `${Math.round(90 * share)}px`;
  row.insertCell().append(made);
}

function tiles() {
  const ranks = board.ranks.filter(each => !each[3]), sum = at => ranks.reduce((total, each) => total + each[at], 0);
  const [busy, called, waited] = [sum(8), sum(9), sum(10)], share = part => busy > 0 ? `${Math.round(100 * part / busy)} %` : "–";
  const rate = before && now.at > before.at ? (now.sent - before.sent) / (now.at - before.at) : 0;
  const shown = [
    [duration(board.now_s), board.job.state === "over" ? "in all" : "since the beginning"],
    [share(busy - called), "computing"], [share(called - waited), "communicating"], [share(waited), "waiting"],
    [board.job.state === "over" ? bytes(sum(11)) : `${bytes(Math.max(0, rate))}/s`, "sent by all ranks"],
    [bytes(sum(7)), "memory of all ranks"], [sum(6).toFixed(1), "cores busy"],
  ];
  if (board.iterations.number) {
    const maxIter = board.iterations.max_iter, eta = board.iterations.eta_s;
    shown.splice(1, 0, [`${board.iterations.number}${maxIter ? ` / ${maxIter}` : ""}`,
      eta === null || board.job.state !== "running" ? "iterations" : `iterations, ${duration(eta)} left at most`]);
  }
  byId("tiles").replaceChildren(...shown.map(([value, name]) => {
    const tile = document.createElement("div"), big = document.createElement("b"), small = document.createElement("span");
    tile.className = "tile"; big.textContent = value; small.textContent = name;
    tile.append(big, small);
    return tile;
  }));
}

function head() {
  const { job } = board, lost = board.ranks.filter(each => each[3]).length;
  const what = board.iterations.name || job.program || "job";
  byId("title").textContent = what;
  document.title = `${what} – Ripieno`;
  const state = stopped && job.state !== "over" ? "not reachable" : job.state;
  byId("state").textContent = state;
  byId("state").className = `state ${state} ${lost || stopped && job.state !== "over" ? "lost" : ""}`;
  byId("about").textContent = `${job.workers} ${job.workers === 1 ? "rank" : "ranks"} in ${job.place || "…"}` +
    (job.threads ? `, ${job.threads} ${job.threads === 1 ? "thread" : "threads"} each` : "") + (lost ? `, ${lost} lost` : "");
}

function fit() {
  const it = board.iterations;
  byId("fit").hidden = !it.numbers.length;
  if (!it.numbers.length) return;
  if (!it.names.includes(chosen)) chosen = it.objective;
  const values = it.values[chosen] || [], known = values.filter(each => each !== null), last = known[known.length - 1];
  byId("fit-words").textContent = `Iteration ${it.number}${it.most ? ` of ${it.most} at most` : ""}: ` +
    `${(chosen || "").replaceAll("_", " ")} ${last === undefined ? "–" : Number(last.toPrecision(8))}` +
    (it.seconds ? `, ${seconds(it.seconds)} each` : "");
  byId("fit-names").replaceChildren(...it.names.map(name => {
    const button = document.createElement("button");
    button.textContent = name.replaceAll("_", " ");
    button.className = name === chosen ? "chosen" : "";
    button.onclick = () => { chosen = name; draw(); };
    return button;
  }));
  const log = known.length > 2 && Math.min(...known) > 0 && Math.max(...known) / Math.min(...known) > 100;
  drawLine("fit-chart", it.numbers, values, { log });
}

function ranks() {
  const shown = board.ranks.slice(0, 256);
  table("ranks", [["Rank"], ["Host"], ["Now"], ["Cores", "number"], ["Memory", "number"], ["Computed", "number"],
    ["Communicated", "number"], ["Waited", "number"], ["Sent", "number"]], shown, (row, each) => {
    const [rank, host, state, lost, collective, waits, cores, memory, busy, called, waited, sent] = each;
    if (lost) row.className = "lost";
    cell(row, rank); cell(row, host);
    const doing = waits ? `waiting for rank ${waits[0]}, ${seconds(waits[1])}` + (collective ? `, in ${collective}` : "")
      : collective ? `in ${collective}` : state;
    cell(row, lost ? `lost: ${state}` : doing, "wide");
    cell(row, lost ? "" : cores.toFixed(2), "number"); cell(row, lost ? "" : bytes(memory), "number");
    for (const time of [busy - called, called - waited, waited]) cell(row, seconds(Math.max(0, time)), "number");
    cell(row, bytes(sent), "number");
  });
}

function waiting() {
  const { pairs, caused, distinct } = board.waiting, worst = caused[0], count = Math.max(board.job.workers, 1);
  byId("waiting-words").textContent = !worst || worst[1] === 0 ? "No rank has waited." : distinct
    ? `Rank ${worst[0]} made the others wait ${seconds(worst[1])}, also through ranks that waited themselves.`
    : `No rank stands out: rank ${worst[0]} made the others wait ${seconds(worst[1])}, as others did.`;
  drawPairs("waits", pairs, count, "rank waits", "for rank");
  const largest = worst ? worst[1] || 1 : 1;
  table("waiting", [["Rank"], ["made others wait", "number"], [""]], caused.filter(each => each[1] > 0).slice(0, 8), (row, each) => {
    cell(row, each[0]); cell(row, seconds(each[1]), "number"); bar(row, each[1] / largest);
  });
}

function traffic() {
  const { pairs, within, between } = board.links, largest = board.usage.length ? board.usage[0][3] || 1 : 1;
  byId("bytes-words").textContent = pairs.length
    ? `${bytes(within)} within hosts, ${bytes(between)} between hosts.` : "Nothing has been sent.";
  drawPairs("links", pairs, Math.max(board.job.workers, 1), "rank sends", "to rank");
  table("usage", [["Collective"], ["Algorithm"], ["Calls", "number"], ["Sent", "number"], [""]], board.usage, (row, each) => {
    const [collective, algorithm, calls, sent] = each;
    cell(row, collective); cell(row, algorithm);
    cell(row, Math.round(calls).toLocaleString("en"), "number"); cell(row, bytes(sent), "number");
    bar(row, sent / largest);
  });
}

function memory() {
  const values = history.memory.map(each => each || null), known = values.filter(each => each);
  byId("memory-words").textContent = known.length
    ? `All ranks together: ${bytes(board.ranks.reduce((total, each) => total + each[7], 0))}, at most ${bytes(Math.max(...known))}.` : "";
  drawLine("memory", values.map((_, at) => at * history.width_s), values, { fill: true, label: bytes, axis: "seconds" });
}

function broadcasts() {
  const rows = board.ranks.flatMap(each => each[13].map(value => [each[0], ...value]));
  byId("broadcasts").hidden = !rows.length;
  table("broadcast-table", [["Rank"], ["From rank"], ["Strategy"], ["Received", "number"], ["Size", "number"], ["Forwarded", "number"], [""]], rows, (row, each) => {
    const [rank, root, strategy, received, forwarded, size] = each;
    cell(row, rank); cell(row, root); cell(row, strategy);
    cell(row, bytes(received), "number"); cell(row, bytes(size), "number"); cell(row, bytes(forwarded), "number");
    bar(row, (rank === root ? size : received) / Math.max(size, 1));
  });
}

function addLines(lines) {
  const box = byId("lines");
  for (const [at, kind, rank, source, text] of lines) {
    const line = document.createElement("div"), when = document.createElement("span");
    const origin = document.createElement("span"), what = document.createElement("b");
    line.className = kind;
    when.textContent = duration(at);
    origin.textContent = kind === "output" ? source : rank === null ? source.replace("ripieno.", "") : `rank ${rank}`;
    origin.title = source;
    what.textContent = text;
    line.append(when, origin, what);
    box.prepend(line);
  }
  while (box.childElementCount > MOST_LINES) box.lastElementChild.remove();
}

function draw() {
  if (!board) return;
  head(); tiles(); fit(); ranks(); waiting(); traffic(); memory(); broadcasts();
  placed = drawTime(history, board.ranks, Math.max(board.now_s, 2 * history.width_s));
  byId("time-note").textContent = history.width_s > 0.5 ? `A step is ${duration(history.width_s)}.` : "";
}

function take(state, isWhole) {
  if (isWhole) byId("lines").replaceChildren();
  board = state;
  stopped = false;
  takeHistory(state.history);
  before = now;
  now = { at: state.now_s, sent: state.ranks.reduce((total, each) => total + each[11], 0) };
  addLines(state.lines);
  draw();
}

function markStopped() {
  stopped = true;
  draw();
}

async function poll() {
  try {
    take(await (await fetch("state", { cache: "no-store" })).json(), true);
    if (board.job.state === "over" || location.hash === "#once") return;
  } catch { markStopped(); }
  setTimeout(poll, 2000);
}

function listen() {
  const source = new EventSource("events");
  let messageCount = 0;
  // A proxy that buffers events delivers nothing for long. Then the page polls.
  const fallback = setTimeout(() => { if (!messageCount) { source.close(); poll(); } }, 5000);
  source.onopen = () => { messageCount = 0; };
  source.onmessage = message => {
    clearTimeout(fallback);
    take(JSON.parse(message.data), messageCount++ === 0);
    if (board.job.state === "over") source.close();
  };
  source.onerror = () => { if (messageCount || source.readyState === EventSource.CLOSED) markStopped(); };
}

function tip(event) {
  const box = byId("time").getBoundingClientRect(), note = byId("tip");
  const rank = placed ? Math.floor((event.clientY - box.top) / placed.row) : -1;
  const bin = placed ? Math.floor((event.clientX - box.left - LEFT) / placed.wide) : -1;
  const waited = (history.waiting[rank] || [])[bin];
  note.hidden = bin < 0 || waited === undefined || waited === 255;
  if (note.hidden) return;
  const [waits, talks] = [waited / 2.5, history.communicating[rank][bin] / 2.5];
  note.textContent = `rank ${rank}, after ${duration(bin * history.width_s)}\n` +
    `${Math.round(100 - waits - talks)} % computing, ${Math.round(talks)} % communicating, ${Math.round(waits)} % waiting`;
  note.style.left = `${Math.min(event.clientX + 14, innerWidth - note.offsetWidth - 8)}px`;
  note.style.top = `${event.clientY + 16}px`;
}

byId("time").addEventListener("pointermove", tip);
byId("time").addEventListener("pointerleave", () => { byId("tip").hidden = true; });
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
// With #once the page fetches the state once, for printing or for a screenshot.
"EventSource" in window && location.hash !== "#once" ? listen() : poll();
