// Charts of what is over: each is in its element's data, and drawn once; again after a panel was swapped.
(() => {
  "use strict";
  const HUES = ["--accent", "--hue-1", "--hue-2", "--hue-3", "--hue-4", "--hue-5", "--hue-6", "--hue-7"];
  const LOOKS = { accent: "--accent", soft: "--accent-soft", grey: "--grey-dark", faint: "--grey", warn: "--warn", bad: "--bad" };
  const POWERS = Array.from({ length: 44 }, (_, n) => 2 ** n);
  const plots = new Map();

  const css = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  const colour = (look) => css(LOOKS[look] ?? HUES[Number(look) % HUES.length]);
  const faint = (value, share) => value.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);

  const round = (v) => `${+v.toPrecision(3)}`;
  const clock = (v, step) => (step < 60 && v < 600 ? `${round(v)} s` : `${Math.floor(v / 60)}:${String(Math.round(v % 60)).padStart(2, "0")}`);
  const days = (v) => (v < 7200 ? clock(v, 60) : v < 172800 ? `${round(v / 3600)} h` : `${round(v / 86400)} d`);
  const SAY = {
    seconds: (v) => (v >= 1 ? `${round(v)} s` : `${round(v * 1000)} ms`),
    bytes: (v) => { const e = v >= 2 ** 30 ? 3 : v >= 2 ** 20 ? 2 : v >= 1024 ? 1 : 0; return `${round(v / 1024 ** e)} ${["B", "KiB", "MiB", "GiB"][e]}`; },
    rate: (v) => `${round(v)}/s`,
    times: (v) => `${round(v)}×`,
    number: round,
  };

  function stacked(lines) {
    let below = null;
    return lines.map((line) => {
      if (line.style !== "area") return line.values;
      below = line.values.map((value, n) => (value ?? 0) + (below ? below[n] : 0));
      return below;
    });
  }

  function marks(plot, curve) {
    const { ctx, bbox } = plot, ratio = devicePixelRatio;
    const at = (value) => Math.round(plot.valToPos(value, "x", true));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - 12 * ratio, bbox.width, bbox.height + 12 * ratio);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    const upright = curve.marks.filter((mark) => !mark.level);
    upright.forEach((mark, n) => {
      const own = colour(mark.look), left = at(mark.at), right = mark.until === null ? left : at(mark.until);
      ctx.fillStyle = faint(own, 0.14);
      if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.fillStyle = own;
      ctx.fillRect(left, bbox.top, Math.max(1, ratio), bbox.height);
      const width = ctx.measureText(mark.label).width + 8 * ratio;
      const over = left + width > bbox.left + bbox.width;
      ctx.textAlign = over ? "right" : "left";
      ctx.fillStyle = css("--text");
      ctx.fillText(mark.label, over ? left - 4 * ratio : left + 4 * ratio, bbox.top + (10 + 13 * (n % 6)) * ratio);
    });
    for (const mark of curve.marks.filter((each) => each.level)) {
      const y = Math.round(plot.valToPos(mark.at, "y", true));
      if (y < bbox.top) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.look);
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.textAlign = "right";
      ctx.fillText(mark.label, bbox.left + bbox.width - 4 * ratio, y - 4 * ratio);
    }
    ctx.restore();
  }

  function series(line, n) {
    const own = () => colour(line.look);
    const made = { stroke: own, width: line.style === "points" ? 0 : 1.5, points: { show: line.style === "points" || line.values.filter((value) => value !== null).length < 3, size: line.style === "points" ? 6 : 4, fill: own, stroke: own }, spanGaps: line.style === "line" };
    if (line.style === "dashed") made.dash = [5, 4];
    if (line.style === "points") made.paths = () => null;
    if (line.style === "area") {
      made.fill = () => faint(own(), 0.55);
      made.width = 1;
      made.paths = uPlot.paths.stepped({ align: 1 });
    }
    return made;
  }

  function draw(element) {
    plots.get(element)?.destroy();
    element.replaceChildren();
    const curve = JSON.parse(element.dataset.curve);
    if (!curve.x.length || !element.clientWidth) return;
    const say = SAY[curve.y_kind], values = stacked(curve.lines);
    // What lies upon others is drawn first, or it would hide them.
    const order = curve.lines.map((_, n) => n).sort((a, b) => (curve.lines[a].style === "area" && curve.lines[b].style === "area" ? b - a : 0));
    const levels = curve.marks.filter((mark) => mark.level).map((mark) => mark.at);
    const moments = curve.marks.filter((mark) => !mark.level).flatMap((mark) => [mark.at, mark.until ?? mark.at]);
    const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const low = curve.x_kind === "rate" ? 0 : Math.min(0, curve.x[0]), high = Math.max(curve.until ?? curve.x.at(-1), ...moments, low + 1e-9);
    const plot = new uPlot({
      width: element.clientWidth,
      height: element.clientHeight,
      padding: [10, 8, 0, 0],
      cursor: { y: false, points: { size: 5 } },
      legend: { show: false },
      scales: {
        x: { time: false, range: () => [low, high] },
        y: { range: (_, least, most) => [0, curve.most ?? (Math.max(most ?? 0, ...levels) || 1) * 1.1] },
      },
      axes: [
        { ...axis, size: 24, space: 64, grid: { show: false }, values: (_, splits, __, ___, step) => splits.map((v) => (curve.x_kind === "rate" ? SAY.rate(v) : step >= 60 ? days(v) : clock(v, step))) },
        { ...axis, size: 58, space: 30, ...(curve.y_kind === "bytes" ? { incrs: POWERS } : {}), values: (_, splits) => splits.map((v) => (v === null ? "" : say(v))) },
      ],
      series: [{}, ...order.map((n) => series(curve.lines[n], n))],
      hooks: { draw: [(self) => marks(self, curve)], setCursor: [(self) => read(element, curve, self.cursor.idx)] },
    }, [curve.x, ...order.map((n) => values[n])], element);
    plot.root.setAttribute("aria-hidden", "true");
    plots.set(element, plot);
  }

  // What is under the pointer, in the legend.
  function read(element, curve, index) {
    const places = element.closest("figure").querySelectorAll("[data-value]");
    places.forEach((place, n) => {
      const value = index === null || index === undefined ? null : curve.lines[n]?.values[index];
      place.textContent = value === null || value === undefined ? "" : SAY[curve.y_kind](value);
    });
  }

  function all() {
    for (const [element, plot] of plots) if (!element.isConnected) { plot.destroy(); plots.delete(element); }
    document.querySelectorAll(".curve").forEach((element) => { if (!plots.has(element)) draw(element); });
  }
  const again = () => document.querySelectorAll(".curve").forEach(draw);

  all();
  document.addEventListener("htmx:after:swap", () => setTimeout(all));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = document.getElementById("main").clientWidth;
  new ResizeObserver(() => {
    const now = document.getElementById("main").clientWidth;
    if (now !== width) { width = now; again(); }
  }).observe(document.getElementById("main"));
})();
