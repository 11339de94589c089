// Charts of the rings: fetched once, then fed by the stream. Colours follow the page's scheme.
(() => {
  "use strict";
  const base = document.body.dataset.base;
  const plots = [...document.querySelectorAll(".plot")];
  if (!plots.length) return;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let span = "10m";
  const charts = [];

  const css = (name) => {
    // A custom property with light-dark() is resolved only where it is used.
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  let colours = {};
  const readColours = () => {
    colours = { text: css("--soft"), line: css("--line"), 0: css("--accent"), 1: css("--grey-dark"), fill: css("--accent-soft") };
  };

  const units = {
    seconds: (v) => (v >= 1 ? `${+v.toPrecision(2)} s` : `${+(v * 1000).toPrecision(2)} ms`),
    bytes: (v) => { const e = v >= 2 ** 30 ? 3 : v >= 2 ** 20 ? 2 : v >= 1024 ? 1 : 0; return `${+(v / 1024 ** e).toPrecision(3)} ${["B", "KiB", "MiB", "GiB"][e]}`; },
    rate: (v) => `${+v.toPrecision(3)}/s`,
    count: (v) => (v >= 10000 ? `${+(v / 1000).toPrecision(3)} k` : `${Math.round(v)}`),
    number: (v) => `${+v.toPrecision(2)}`,
  };

  // Half a job is none: labels between whole counts would say the same twice.
  const COUNTS = Array.from({ length: 13 }, (_, n) => [1, 2, 5].map((each) => each * 10 ** n)).flat();
  const INCREMENTS = { bytes: Array.from({ length: 44 }, (_, n) => 2 ** n), count: COUNTS };
  // What is only known while something happens: single points must be seen, and no line joins them.
  const SPARSE = new Set([1, 2, 6, 7]);

  function make(element) {
    const wanted = element.dataset.columns.split(",").map(Number);
    const say = units[element.dataset.kind] ?? units.number;
    const tall = element.closest(".tall") !== null;
    const axis = { stroke: () => colours.text, grid: { stroke: () => colours.line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options = {
      width: element.clientWidth || 200,
      height: element.clientHeight,
      padding: [6, tall ? 16 : 4, tall ? 0 : 4, 0],
      cursor: { y: false, points: { size: 5 } },
      legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, show: tall, size: 22, space: 60, grid: { show: false }, values: [[3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{mm}:{ss}"]] },
        { ...axis, size: 52, ...(INCREMENTS[element.dataset.kind] ? { incrs: INCREMENTS[element.dataset.kind] } : {}), space: 28, values: (_, splits) => splits.map((v) => (v === null ? "" : say(v))) },
      ],
      series: [{}, ...wanted.map((column, n) => ({ stroke: () => colours[n], width: 1.5, fill: () => (n === 0 && wanted.length === 1 ? colours.fill + "" : undefined), points: { show: tall && SPARSE.has(column), size: 3, fill: () => colours[n] }, spanGaps: false }))],
    };
    for (const series of options.series.slice(1)) if (wanted.length > 1) series.fill = undefined;
    const chart = { element, wanted, say, name: element.dataset.series, data: [[], ...wanted.map(() => [])], plot: null, newest: element.closest("figure").querySelector("[data-newest]") };
    chart.plot = new uPlot(options, chart.data, element);
    chart.plot.root.setAttribute("aria-hidden", "true");
    return chart;
  }

  function draw(chart) {
    const until = chart.data[0].at(-1) ?? Date.now() / 1000;
    chart.plot.batch(() => {
      chart.plot.setData(chart.data, true);
      // What was looked at for a moment only fills the chart: it grows to its span.
      const [least, most] = span === "10m" ? [120, 600] : [7200, 86400];
      chart.plot.setScale("x", { min: Math.max(until - most, Math.min(chart.data[0][0] ?? until, until - least)), max: until });
    });
    const last = chart.data[1].findLast((value) => value !== null);
    chart.newest.textContent = last === undefined ? "n/a" : chart.say(last);
    chart.element.setAttribute("aria-label", `${chart.element.closest("figure").innerText.trim()}, lately`);
  }

  async function fetchAll() {
    for (const name of new Set(charts.map((chart) => chart.name))) {
      const answer = await fetch(`${base}/console/series?of=${encodeURIComponent(name)}&span=${span}`);
      if (!answer.ok) continue;
      const { columns } = await answer.json();
      for (const chart of charts.filter((each) => each.name === name)) {
        // Copies: each chart goes on by itself from here.
        chart.data = [[...columns[0]], ...chart.wanted.map((column) => [...columns[column + 1]])];
        draw(chart);
      }
    }
  }

  document.addEventListener("serai:points", ({ detail }) => {
    if (span !== "10m") return;
    for (const chart of charts.filter((each) => each.name === detail.series)) {
      const newest = chart.data[0].at(-1) ?? 0;
      detail.columns[0].forEach((at, n) => {
        if (at <= newest) return;
        chart.data[0].push(at);
        chart.wanted.forEach((column, place) => chart.data[place + 1].push(detail.columns[column + 1][n]));
      });
      const old = chart.data[0].length - 600;
      if (old > 0) chart.data.forEach((column) => column.splice(0, old));
      draw(chart);
    }
  });
  document.addEventListener("serai:again", fetchAll);

  document.querySelectorAll("[data-span]").forEach((button) => button.addEventListener("click", () => {
    span = button.dataset.span;
    document.querySelectorAll("[data-span]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    fetchAll();
  }));

  readColours();
  charts.push(...plots.map(make));
  dark.addEventListener("change", () => { readColours(); charts.forEach((chart) => chart.plot.redraw(false)); });
  new ResizeObserver(() => charts.forEach((chart) => {
    const width = chart.element.clientWidth;
    if (width && width !== chart.plot.width) chart.plot.setSize({ width, height: chart.element.clientHeight });
  })).observe(document.getElementById("main"));
  fetchAll();
})();
