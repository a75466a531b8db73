// Drawing on canvases, in the colors of the page, light or dark, at the sharpness of the screen.
"use strict";

const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function sheet(id, height) {
  const canvas = document.getElementById(id);
  if (height) canvas.style.height = height + "px";
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(box.width * ratio)), high = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  pen.font = "12px system-ui, sans-serif";
  return { pen, canvas, width: box.width, height: box.height };
}

function resolved(name) {
  // A custom property may refer to another one.
  let value = color(name);
  for (let depth = 0; value.startsWith("var(") && depth < 4; depth++) value = color(value.slice(4, -1).trim());
  return value;
}

const LEFT = 58, BOTTOM = 20;

function timeAxis({ pen, width, height }, seconds) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const room = width - LEFT, most = Math.max(2, Math.floor(room / 90));
  const step = steps.find(each => seconds / each <= most) || Math.ceil(seconds / most / 86400) * 86400;
  pen.fillStyle = resolved("--muted");
  pen.strokeStyle = resolved("--grid");
  pen.textBaseline = "top";
  for (let at = 0; at <= seconds; at += step) {
    const x = LEFT + room * at / seconds;
    if (x > width - 24 && at > 0) break;
    pen.textAlign = at === 0 ? "left" : "center";
    pen.fillText(duration(at), x, height - BOTTOM + 5);
    pen.beginPath(); pen.moveTo(x, height - BOTTOM); pen.lineTo(x, height - BOTTOM + 3); pen.stroke();
  }
}

// A row for each rank, and a column for each bin, stacked from below: computing, communicating, waiting.
function drawTime(history, ranks, seconds) {
  const count = Math.max(history.rankCount, 1);
  const row = Math.max(2, Math.min(34, Math.floor(420 / count)));
  const area = sheet("time", count * row + BOTTOM), { pen, width } = area;
  const room = width - LEFT, bins = Math.max(1, Math.ceil(seconds / history.width_s));
  const wide = room / (seconds / history.width_s), gap = row > 8 ? 3 : row > 4 ? 1 : 0, high = row - gap;
  const paint = ["--computing", "--communicating", "--waiting"].map(resolved);
  pen.save();
  pen.beginPath(); pen.rect(LEFT, 0, room, count * row); pen.clip();
  for (let rank = 0; rank < history.rankCount; rank++) {
    const waiting = history.waiting[rank], communicating = history.communicating[rank];
    for (let bin = 0; bin < bins; bin++) {
      if (waiting[bin] === 255 || waiting[bin] === undefined) continue;
      const shares = [1 - (waiting[bin] + communicating[bin]) / 250, communicating[bin] / 250, waiting[bin] / 250];
      const x = LEFT + bin * wide;
      let y = rank * row + high;
      shares.forEach((share, which) => {
        if (share <= 0) return;
        pen.fillStyle = paint[which];
        pen.fillRect(x, y - share * high, wide + 0.5, share * high);
        y -= share * high;
      });
    }
  }
  pen.restore();
  pen.fillStyle = resolved("--muted");
  pen.textAlign = "right"; pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(14 / row));
  for (let rank = 0; rank < count; rank += every) {
    const known = ranks[rank];
    if (known && known[3]) pen.fillStyle = resolved("--lost");
    pen.fillText((count <= 16 ? "rank " : "") + rank, LEFT - 8, rank * row + high / 2);
    pen.fillStyle = resolved("--muted");
  }
  timeAxis(area, seconds);
  return { row, bins, wide };
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

function drawLine(id, xs, ys, { log = false, fill = false, label = number, axis = null } = {}) {
  const area = sheet(id), { pen, width, height } = area;
  const points = xs.map((x, at) => [x, ys[at]]).filter(([, y]) => y !== null && y !== undefined && (!log || y > 0));
  if (!points.length) return;
  const of = log ? Math.log10 : value => value;
  let low = Math.min(...points.map(each => of(each[1]))), high = Math.max(...points.map(each => of(each[1])));
  if (fill) low = 0;
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { low -= fill ? 0 : 0.5; high += 0.5; }
  const first = points[0][0], last = points[points.length - 1][0];
  const x = value => LEFT + (width - LEFT - 8) * (last > first ? (value - first) / (last - first) : 0.5);
  const y = value => 8 + (height - BOTTOM - 12) * (1 - (of(value) - low) / (high - low));
  pen.textAlign = "right"; pen.textBaseline = "middle"; pen.strokeStyle = resolved("--grid"); pen.fillStyle = resolved("--muted");
  for (const tick of ticks(low, high, height > 120 ? 4 : 2)) {
    const value = log ? 10 ** tick : tick, at = y(value);
    pen.beginPath(); pen.moveTo(LEFT, at); pen.lineTo(width - 8, at); pen.stroke();
    pen.fillText(label(value), LEFT - 8, at);
  }
  pen.strokeStyle = pen.fillStyle = resolved("--first");
  pen.lineWidth = 2; pen.lineJoin = "round";
  pen.beginPath();
  points.forEach(([px, py], at) => at ? pen.lineTo(x(px), y(py)) : pen.moveTo(x(px), y(py)));
  pen.stroke();
  if (fill) {
    pen.lineTo(x(last), y(0)); pen.lineTo(x(first), y(0));
    pen.globalAlpha = 0.18; pen.fill(); pen.globalAlpha = 1;
  } else if (points.length <= 80) {
    for (const [px, py] of points) { pen.beginPath(); pen.arc(x(px), y(py), 2.5, 0, 7); pen.fill(); }
  }
  if (axis === "seconds") { timeAxis(area, last); return; }
  pen.fillStyle = resolved("--muted"); pen.textBaseline = "top";
  pen.textAlign = "left"; pen.fillText(String(first), LEFT, height - BOTTOM + 5);
  if (last > first) { pen.textAlign = "right"; pen.fillText(String(last), width - 8, height - BOTTOM + 5); }
}

// Pairs of ranks as a square; darker is more. Row i shows the activity of rank i.
function drawPairs(id, pairs, count, down, across) {
  const canvas = document.getElementById(id);
  canvas.hidden = !pairs.length || count < 2;
  if (canvas.hidden) return;
  const most = Math.max(...pairs.map(each => each[2])) || 1;
  const side = Math.min(canvas.parentElement.clientWidth - 80, Math.max(110, Math.min(300, count * 36)));
  const { pen } = sheet(id, side + 42), cell = side / count, paint = resolved("--first");
  pen.fillStyle = resolved("--page"); pen.fillRect(LEFT, 20, side, side);
  for (const [row, column, value] of pairs) {
    pen.globalAlpha = 0.06 + 0.94 * value / most;
    pen.fillStyle = paint;
    pen.fillRect(LEFT + column * cell, 20 + row * cell, cell - (cell > 5 ? 1 : 0), cell - (cell > 5 ? 1 : 0));
  }
  pen.globalAlpha = 1;
  pen.fillStyle = resolved("--muted");
  const every = Math.max(1, Math.ceil(16 / cell));
  for (let rank = 0; rank < count; rank += every) {
    pen.textAlign = "right"; pen.textBaseline = "middle";
    pen.fillText(rank, LEFT - 6, 20 + (rank + 0.5) * cell);
    pen.textAlign = "center"; pen.textBaseline = "top";
    pen.fillText(rank, LEFT + (rank + 0.5) * cell, 20 + side + 5);
  }
  pen.textAlign = "left"; pen.textBaseline = "top";
  pen.fillText(`↓ ${down}, → ${across}`, 0, 0);
}
