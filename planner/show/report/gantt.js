"use strict";
// An interactive Gantt chart on a canvas: per GPU the compute lane, the copy lane, and the models in memory.
(() => {
  const ROW = 92, IDLE = 20, LABELS = 112, AXIS = 26, MOST_ROWS = 8;
  const COMPUTE = [6, 28], COPY = [38, 11], MEMORY = [53, 33]; // offset from the top of a GPU's row, and height
  const HELD = 0.85, LOADING = 0.4; // how much of its colour a model in memory has, and one that still loads

  const time = (us) => {
    const far = Math.abs(us);
    return far >= 1e6 ? `${(us / 1e6).toFixed(3)} s` : far >= 1e3 ? `${(us / 1e3).toFixed(3)} ms` : `${us} µs`;
  };
  // As models.units.say_size: four digits, in the unit that leaves at least one whole one.
  const size = (bytes) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let shown = Number(bytes.toPrecision(4));
    while (shown >= 1000 && units.length > 1) {
      shown = Number((shown / 1000).toPrecision(4));
      units.shift();
    }
    return `${shown} ${units[0]}`;
  };

  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.trim().slice(at, at + 2), 16) / 255);
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };

  // Residencies of one GPU as bars: with slots each in its slot, otherwise stacked in the order of the models.
  function bars(here, gpu) {
    if (gpu.slots.length) {
      const floors = gpu.slots.map((_, slot) => gpu.slots.slice(0, slot).reduce((a, b) => a + b, 0));
      return here.map((r) => ({ r, from: r.from, to: r.to, floor: floors[r.slot], height: r.weight }));
    }
    const times = [...new Set(here.flatMap((r) => [r.from, r.to]))].sort((a, b) => a - b);
    const made = [], latest = new Map();
    let held = [], next = 0;
    times.slice(0, -1).forEach((from, index) => {
      held = held.filter((r) => r.to > from);
      while (next < here.length && here[next].from <= from) held.push(here[next++]);
      held = held.filter((r) => r.to > from).sort((a, b) => a.model - b.model);
      let floor = 0;
      for (const r of held) {
        const last = latest.get(r);
        if (last && last.to === from && last.floor === floor) last.to = times[index + 1];
        else latest.set(r, made[made.push({ r, from, to: times[index + 1], floor, height: r.weight }) - 1]);
        floor += r.weight;
      }
    });
    return made;
  }

  // A timeline by GPU: runs and loads in order of time, bars of memory.
  function lanes(document, timeline) {
    const instance = document.instances[timeline.instance];
    const { workflows, gpus, models, jobs } = instance;
    const rows = gpus.map((gpu) => ({ gpu, runs: [], loads: [], here: [] }));
    let task = 0, end = 1;
    jobs.workflow.forEach((workflow, job) => {
      for (const template of workflows[workflow].tasks) {
        const from = timeline.start_us[task], to = from + timeline.run_us[task], gpu = timeline.gpu[task];
        // A batch is one run, that of its first task; a run reaches as high as its share of the GPU.
        const members = timeline.members?.[task] ?? 1, low = timeline.low?.[task] ?? 0, high = timeline.high?.[task] ?? 1;
        const run = { kind: "run", from, to, job, workflow: workflows[workflow].name, template, members, low, high };
        // A place beyond the last GPU is several of them.
        if (members) for (const each of instance.places?.[gpu - gpus.length] ?? [gpu]) rows[each]?.runs.push({ ...run });
        end = Math.max(end, to);
        task += 1;
      }
    });
    for (const [gpu, model, from, ready, evicted, slot, initial] of timeline.residencies) {
      const place = instance.places?.[gpu - gpus.length] ?? [gpu];
      const weight = Math.ceil(models[model].weight_bytes / place.length);
      for (const each of place) {
        const stay = { model, weight, from, ready, to: Math.max(from + 1, evicted ?? Infinity), evicted, slot, initial };
        rows[each].here.push(stay);
        if (!initial) rows[each].loads.push({ kind: "load", from, to: ready, stay });
      }
    }
    for (const row of rows) {
      for (const lane of [row.runs, row.loads, row.here]) lane.sort((a, b) => a.from - b.from);
      row.here.forEach((stay) => { stay.to = Math.min(stay.to, Math.max(end, stay.from + 1)); });
      row.bars = bars(row.here, row.gpu);
      row.shared = row.runs.some((run) => run.high - run.low < 1);
      row.idle = !row.runs.length && !row.loads.length;
    }
    let top = 0;
    for (const row of rows) {
      Object.assign(row, { top, height: row.idle ? IDLE : ROW });
      top += row.height;
    }
    return { instance, rows, end, total: top };
  }

  const firstEndingAfter = (lane, time) => {
    let low = 0, high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane[middle].to > time) high = middle; else low = middle + 1;
    }
    return low;
  };

  class Gantt {
    constructor(root) {
      this.root = root;
      this.document = JSON.parse(document.getElementById(root.dataset.source).textContent);
      this.colours = JSON.parse(root.dataset.colours);
      [this.canvas, this.scroller, this.tip, this.select, this.legend, this.seen] =
        ["canvas", ".scroller", ".tooltip", "select", ".legend", ".seen"].map((part) => root.querySelector(part));
      this.document.timelines.forEach((timeline, index) => {
        this.select.add(new Option(timeline.name + (timeline.clairvoyant ? " (knows the future)" : ""), index));
      });
      this.select.addEventListener("change", () => this.show(Number(this.select.value)));
      this.listen();
      this.select.value = this.root.dataset.first;
      this.show(Number(this.select.value));
      this.draw();
    }

    // Show another timeline; what part of time is seen stays, so that two can be compared.
    show(index) {
      this.timeline = this.document.timelines[index];
      Object.assign(this, lanes(this.document, this.timeline));
      this.whole = Math.max(...this.document.timelines.map((t) => t.start_us.reduce((m, s, i) => Math.max(m, s + t.run_us[i]), 1)));
      this.view ??= { from: 0, to: this.end };
      const height = this.total + AXIS;
      this.height = Math.min(height, MOST_ROWS * ROW + AXIS);
      this.scroller.style.height = `${this.height + 2}px`;
      this.canvas.style.height = `${this.height}px`;
      this.root.querySelector(".spacer").style.height = `${height - this.height}px`;
      this.canvas.setAttribute("aria-label", `Gantt chart of ${this.timeline.name}`);
      this.nameModels();
      this.hovered = null;
      this.refresh();
    }

    nameModels() {
      const used = [...new Set(this.timeline.residencies.map((r) => r[1]))].sort((a, b) => a - b);
      const entries = used.map((model) => [this.colour(model), this.instance.models[model].name]);
      entries.push([this.colours.at(-1), "no model"]);
      this.legend.replaceChildren(...entries.map(([colour, name]) => {
        const item = document.createElement("li"), swatch = document.createElement("span");
        swatch.className = "swatch";
        swatch.style.background = colour;
        item.append(swatch, name);
        return item;
      }));
    }

    colour(model) {
      return model === undefined ? this.colours.at(-1) : this.colours[model % (this.colours.length - 1)];
    }

    listen() {
      const { canvas } = this;
      canvas.addEventListener("wheel", (event) => {
        if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY / 300), event.offsetX);
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX || event.deltaY);
        else return;
        event.preventDefault();
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); this.dragged = event.offsetX; });
      canvas.addEventListener("pointerup", () => { this.dragged = null; });
      canvas.addEventListener("pointercancel", () => { this.dragged = null; });
      canvas.addEventListener("pointermove", (event) => this.move(event));
      canvas.addEventListener("pointerleave", () => this.hover(null));
      canvas.addEventListener("dblclick", (event) => this.zoom(event.shiftKey ? 2 : 0.5, event.offsetX));
      canvas.addEventListener("keydown", (event) => {
        const act = { ArrowLeft: () => this.pan(-80), ArrowRight: () => this.pan(80), "+": () => this.zoom(0.6), "-": () => this.zoom(1.6),
          0: () => this.fit() }[event.key];
        if (!act) return;
        act();
        event.preventDefault();
      });
      for (const button of this.root.querySelectorAll("button")) {
        const act = { in: () => this.zoom(0.5), out: () => this.zoom(2), fit: () => this.fit() }[button.dataset.act];
        button.addEventListener("click", act);
      }
      this.scroller.addEventListener("scroll", () => this.refresh());
      new ResizeObserver(() => this.refresh()).observe(this.scroller);
      for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => this.draw());
      for (const moment of ["beforeprint", "afterprint"]) addEventListener(moment, () => this.draw());
    }

    get width() { return this.scroller.clientWidth; }
    get scale() { return (this.width - LABELS - 8) / (this.view.to - this.view.from); }
    x(us) { return LABELS + (us - this.view.from) * this.scale; }
    at(x) { return this.view.from + (x - LABELS) / this.scale; }

    zoom(factor, x = (LABELS + this.width - 8) / 2) {
      const fixed = this.at(Math.max(x, LABELS)), span = this.view.to - this.view.from;
      const wanted = Math.min(Math.max(span * factor, 2), this.whole);
      const from = fixed - (fixed - this.view.from) * (wanted / span);
      this.view = { from, to: from + wanted };
      this.pan(0);
    }

    pan(pixels) {
      const span = this.view.to - this.view.from, shift = pixels / this.scale;
      const from = Math.min(Math.max(this.view.from + shift, 0), this.whole - span);
      this.view = { from, to: from + span };
      this.refresh();
    }

    fit() {
      this.view = { from: 0, to: this.end };
      this.refresh();
    }

    move(event) {
      if (this.dragged != null) {
        this.pan(this.dragged - event.offsetX);
        this.dragged = event.offsetX;
      }
      this.hover(this.find(event.offsetX, event.offsetY), event);
    }

    // What lies at a point of the canvas: a run, a load, or a bar of memory.
    find(x, y) {
      const down = y + this.scroller.scrollTop, row = this.rows.find((r) => down < r.top + r.height), within = down - row?.top;
      if (!row || row.idle || x < LABELS || y > this.height - AXIS) return null;
      const now = this.at(x), slack = 1.5 / this.scale, inside = ([top, height]) => within >= top && within < top + height;
      const lane = inside(COMPUTE) ? row.runs : inside(COPY) ? row.loads : null;
      if (lane === row.runs && row.shared) {
        const level = 1 - (within - COMPUTE[0]) / COMPUTE[1];
        const item = lane.find((run) => run.from <= now + slack && now - slack < run.to && run.low <= level && level < run.high);
        return item ? { ...item, row } : null;
      }
      if (lane) {
        const item = lane[firstEndingAfter(lane, now - slack)];
        return item && item.from <= now + slack ? { ...item, row } : null;
      }
      if (!inside(MEMORY)) return null;
      const level = (1 - (within - MEMORY[0]) / MEMORY[1]) * row.gpu.memory_bytes;
      const bar = row.bars.find((b) => b.from <= now && now < b.to && b.floor <= level && level < b.floor + b.height);
      return bar ? { kind: "stay", stay: bar.r, row } : null;
    }

    hover(item, event) {
      const before = this.hovered;
      this.hovered = item;
      this.tip.hidden = !item;
      if (item?.job !== before?.job) this.refresh();
      if (!item) return;
      this.tip.replaceChildren(...this.words(item).map((line) => {
        const row = document.createElement("div");
        row.textContent = line;
        return row;
      }));
      const box = this.canvas.getBoundingClientRect(), home = this.root.getBoundingClientRect();
      const left = Math.min(event.clientX + 14, box.right - this.tip.offsetWidth) - home.left;
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = `${event.clientY - home.top + 16}px`;
    }

    words(item) {
      const { models, jobs } = this.instance, place = item.row.gpu.id;
      if (item.kind === "run") {
        const { job, template } = item, latency = this.timeline.latency_us[job];
        return [
          `${template.name}, job ${job} (${item.workflow})${item.members > 1 ? `, first of a batch of ${item.members}` : ""}`,
          `${place}: ${time(item.from)} to ${time(item.to)}, runs ${time(item.to - item.from)}`,
          template.models.length ? `needs ${template.models.map((model) => models[model].name).join(", ")}` : "needs no model",
          `job released at ${time(jobs.release_us[job])}, latency ${time(latency)}, slowdown ${this.timeline.slowdown[job]}`,
        ];
      }
      const { stay } = item, model = models[stay.model], slot = stay.slot == null ? "" : `, slot ${stay.slot}`;
      return [
        `${item.kind === "load" ? "load of " : ""}${model.name} (${size(stay.weight)})`,
        `${place}${slot}: ${stay.initial ? "resident at time 0" : `loaded ${time(stay.from)} to ${time(stay.ready)}`}`,
        stay.evicted == null ? "never evicted" : `evicted at ${time(stay.evicted)}`,
      ];
    }

    refresh() {
      this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); });
    }

    draw() {
      const { canvas, width, height } = this, ratio = devicePixelRatio || 1, style = getComputedStyle(this.root);
      [this.ink, this.soft, this.line, this.shade, this.paper] =
        ["--ink", "--soft", "--line", "--shade", "--paper"].map((name) => style.getPropertyValue(name));
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const pen = (this.pen = canvas.getContext("2d"));
      pen.scale(ratio, ratio);
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      pen.fillStyle = this.paper;
      pen.fillRect(0, 0, width, height);
      const above = this.scroller.scrollTop;
      this.rows.forEach((row, index) => {
        if (row.top + row.height > above && row.top - above < height) this.drawRow(row, row.top - above, index);
      });
      this.drawAxis(height - AXIS);
      this.sayWhatIsSeen(above, above + height - AXIS);
    }

    // Say how many GPUs there are, and which of them stand between two heights.
    sayWhatIsSeen(above, below) {
      const { rows } = this, idle = rows.filter((row) => row.idle).length;
      const seen = rows.filter((row) => row.top + row.height / 2 >= above && row.top + row.height / 2 <= below);
      const said = [`${rows.length} ${rows.length === 1 ? "GPU" : "GPUs"}`];
      if (idle) said.push(`${idle} of them idle`);
      if (seen.length < rows.length) said.push(`seen here: ${seen[0]?.gpu.id} to ${seen.at(-1)?.gpu.id}, scroll for the others`);
      this.seen.textContent = `${said.join("; ")}.`;
    }

    // Black or white, whichever is easier to read on a colour that covers so much of the paper.
    inkOn(colour, alpha) {
      const paper = parts(this.paper), mixed = luminance(parts(colour).map((part, index) => alpha * part + (1 - alpha) * paper[index]));
      return 1.05 / (mixed + 0.05) > (mixed + 0.05) / 0.05 ? "#ffffff" : "#000000";
    }

    drawRow(row, top, index) {
      const { pen, width } = this, memory = row.gpu.memory_bytes;
      pen.fillStyle = index % 2 ? this.shade : this.paper;
      pen.fillRect(0, top, width, row.height);
      const name = row.gpu.kind ? `${row.gpu.id} (${row.gpu.kind})` : row.gpu.id;
      if (row.idle) {
        this.nameLane(`${name} idle`, top + IDLE / 2, this.soft);
        return;
      }
      pen.save();
      pen.beginPath();
      pen.rect(LABELS, top, width - LABELS, ROW);
      pen.clip();
      for (const [gone, back] of row.gpu.away ?? []) this.hatch(gone, back ?? Infinity, top);
      const named = (run) => (run.members > 1 ? `${run.job} and ${run.members - 1} more` : String(run.job));
      this.drawLane(row.runs, top + COMPUTE[0], COMPUTE[1], (run) => this.colour(run.template.models[0]), named, row.shared);
      this.drawLane(row.loads, top + COPY[0], COPY[1], (load) => this.colour(load.stay.model), () => "");
      const { from, to } = this.view, floor = top + MEMORY[0] + MEMORY[1], unit = MEMORY[1] / memory;
      for (const bar of row.bars) {
        if (bar.to <= from || bar.from >= to) continue;
        const y = floor - (bar.floor + bar.height) * unit, ready = Math.min(Math.max(bar.r.ready, bar.from), bar.to);
        const colour = this.colour(bar.r.model), tall = bar.height * unit;
        this.block(bar.from, ready, y, tall, colour, LOADING);
        this.block(ready, bar.to, y, tall, colour, HELD);
        this.label(this.instance.models[bar.r.model].name, ready, bar.to, y + tall / 2, tall, this.inkOn(colour, HELD));
      }
      pen.strokeStyle = this.soft;
      pen.lineWidth = 1;
      let filled = 0;
      for (const bytes of row.gpu.slots.length ? row.gpu.slots : [memory]) { // the line on top is the memory's size
        filled += bytes;
        const y = Math.round(floor - filled * unit) + 0.5;
        pen.beginPath();
        pen.moveTo(LABELS, y);
        pen.lineTo(width, y);
        pen.stroke();
      }
      pen.restore();
      this.nameLane(name, top + COMPUTE[0] + COMPUTE[1] / 4, this.ink);
      this.nameLane("compute", top + COMPUTE[0] + (COMPUTE[1] * 3) / 4, this.soft);
      this.nameLane("copy", top + COPY[0] + COPY[1] / 2, this.soft);
      this.nameLane(`memory ${size(memory)}`, top + MEMORY[0] + MEMORY[1] / 2, this.soft);
    }

    nameLane(text, y, colour) {
      this.pen.textAlign = "right";
      this.pen.fillStyle = colour;
      this.pen.fillText(text, LABELS - 6, y, LABELS - 8);
    }

    // Hatch a row while its GPU is away.
    hatch(gone, back, top) {
      const { pen, width } = this;
      const left = Math.max(LABELS, this.x(gone)), right = Math.min(width, this.x(back));
      if (right <= left) return;
      pen.save();
      pen.beginPath();
      pen.rect(left, top, right - left, ROW);
      pen.clip();
      pen.beginPath();
      for (let x = left - (left % 8) - ROW; x < right; x += 8) {
        pen.moveTo(x, top + ROW);
        pen.lineTo(x + ROW, top);
      }
      pen.strokeStyle = this.soft;
      pen.lineWidth = 0.7;
      pen.stroke();
      pen.restore();
    }

    // Draw what can be seen of a lane; what is narrower than a pixel is drawn once per pixel.
    // Where runs share a GPU they overlap in time, each at a height of its own.
    drawLane(lane, floor, room, colour, name, shared = false) {
      const { pen } = this;
      let drawn = -1;
      for (let index = shared ? 0 : firstEndingAfter(lane, this.view.from); index < lane.length && lane[index].from < this.view.to; index += 1) {
        const item = lane[index], left = this.x(item.from), right = this.x(item.to);
        if (shared ? item.to <= this.view.from : right < drawn) continue;
        drawn = Math.max(right, Math.floor(left) + 1);
        const low = item.low ?? 0, high = item.high ?? 1, y = floor + room * (1 - high), height = room * (high - low) - (high - low < 1 ? 0.5 : 0);
        pen.fillStyle = colour(item);
        pen.fillRect(left, y, Math.max(right - left - (right - left > 4 ? 0.8 : 0), 0.8), height);
        if (item.kind === "run" && item.job === this.hovered?.job) {
          pen.strokeStyle = this.ink;
          pen.lineWidth = 2;
          pen.strokeRect(left + 1, y + 1, Math.max(right - left - 2, 1), height - 2);
        }
        if (right - left > 14) this.label(name(item), item.from, item.to, y + height / 2, height, this.inkOn(colour(item), 1));
      }
    }

    block(from, to, y, height, colour, alpha) {
      const left = Math.max(this.x(from), LABELS), right = Math.min(this.x(to), this.width);
      if (right <= left) return;
      this.pen.globalAlpha = alpha;
      this.pen.fillStyle = colour;
      this.pen.fillRect(left, y, Math.max(right - left, 0.6), Math.max(height - 0.5, 0.6));
      this.pen.globalAlpha = 1;
    }

    // Write a text in the middle of what can be seen of an interval, if it fits there.
    label(text, from, to, y, height, ink) {
      const left = Math.max(this.x(from), LABELS), right = Math.min(this.x(to), this.width), { pen } = this;
      if (!text || height < 10 || right - left < 14 || pen.measureText(text).width > right - left - 4) return;
      pen.textAlign = "center";
      pen.fillStyle = ink;
      pen.fillText(text, (left + right) / 2, y + 0.5);
    }

    drawAxis(top) {
      const { pen, width } = this, { from, to } = this.view;
      pen.fillStyle = this.paper;
      pen.fillRect(0, top, width, AXIS);
      const rough = (to - from) / Math.max(2, (width - LABELS) / 110), power = 10 ** Math.floor(Math.log10(rough));
      const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((wanted) => wanted >= rough));
      const [unit, length] = step >= 1e5 ? ["s", 1e6] : step >= 100 ? ["ms", 1e3] : ["µs", 1];
      pen.textAlign = "center";
      for (let mark = Math.ceil(from / step) * step; mark <= to; mark += step) {
        const x = Math.round(this.x(mark)) + 0.5;
        pen.fillStyle = this.line;
        pen.fillRect(x, top, 1, 5);
        pen.fillStyle = this.soft;
        if (x < width - 20) pen.fillText(`${Number((mark / length).toFixed(3))} ${unit}`, x, top + 15);
      }
      pen.fillStyle = this.line;
      pen.fillRect(LABELS, top, width - LABELS, 1);
    }
  }

  for (const root of document.querySelectorAll(".gantt")) root.gantt = new Gantt(root);
  performance.mark("drawn");
})();
