// What a model answered, as elements. Text goes in as text, never as markup.
const drawing = (() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function shape(name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function table(heads, rows) {
    const numeric = heads.map((_, n) => rows.length > 0 && rows.every((row) => typeof row[n] === "number"));
    const broken = heads.map((_, n) => rows.some((row) => typeof row[n] === "number" && !Number.isInteger(row[n])));
    const cell = (name, text, n) => make(name, { class: numeric[n] ? "n" : "wrap", ...(name === "th" ? { scope: "col" } : {}) }, String(text));
    const body = rows.map((row) => make("tr", {}, ...row.map((value, n) => cell("td", numeric[n] && broken[n] ? value.toFixed(Math.abs(value) < 100 ? 3 : 1) : value, n))));
    return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head, n) => cell("th", head, n)))), make("tbody", {}, ...body));
  }

  function bars(values) {
    const most = 256, shown = values.slice(0, most);
    const peak = Math.max(1e-9, ...shown.map(Math.abs));
    const svg = shape("svg", { class: "vector", viewBox: `0 -1 ${shown.length} 2`, preserveAspectRatio: "none", role: "img", "aria-label": `the first ${shown.length} of ${values.length} numbers` });
    shown.forEach((value, n) => {
      const height = Math.abs(value) / peak;
      svg.append(shape("rect", { x: n + 0.1, width: 0.8, y: value > 0 ? -height : 0, height }));
    });
    return svg;
  }

  function vectors(answer, texts) {
    return answer.items.flatMap((item, n) => {
      const parts = [make("h3", {}, texts[n] === undefined ? `item ${n + 1}` : texts[n].slice(0, 80))];
      if (item.dense) {
        const length = Math.hypot(...item.dense.values);
        parts.push(make("p", { class: "shape" }, `dense: ${item.dense.values.length} × ${item.dense.dtype}, length ${length.toFixed(3)}`), bars(item.dense.values));
      }
      if (item.sparse) parts.push(make("p", { class: "shape" }, `sparse: ${item.sparse.indices.length} of ${item.sparse.dims} are not zero, ${item.sparse.dtype}`), bars(item.sparse.values));
      if (item.multivector) parts.push(make("p", { class: "shape" }, `multivector: ${item.multivector.num_tokens} tokens × ${item.multivector.token_dims}, ${item.multivector.dtype}`), bars(item.multivector.values[0] ?? []));
      return parts;
    });
  }

  function likeness(answer) {
    const dense = answer.items.map((item) => item.dense?.values).filter(Boolean);
    if (dense.length < 2) return [];
    const dot = (a, b) => a.reduce((sum, value, n) => sum + value * b[n], 0);
    const rows = dense.map((a, n) => [`${n + 1}`, ...dense.map((b) => dot(a, b) / (Math.hypot(...a) * Math.hypot(...b)))]);
    return [make("h3", {}, "How alike they are (cosine)"), table(["", ...dense.map((_, n) => String(n + 1))], rows)];
  }

  function ranked(answer, texts) {
    // Scores of some models are below zero: then the lowest has a short bar, and the highest a full one.
    const scores = answer.scores.map((each) => each.score), least = Math.min(...scores), most = Math.max(...scores);
    const from = least < 0 ? least - 0.1 * (most - least || 1) : 0, over = most - from || 1;
    const list = make("ol", { class: "ranked" });
    for (const { item_id: id, score } of answer.scores) {
      const text = texts[Number(id.replace("item-", ""))] ?? id;
      const meter = make("meter", { min: 0, max: 1, value: (score - from) / over, "aria-hidden": "true" });
      list.append(make("li", {}, make("span", { class: "score" }, score.toPrecision(4)), " ", meter, " ", text));
    }
    return [list];
  }

  // Offsets count code points, as Python's do; a string here counts UTF-16 units.
  function highlighted(text, entities) {
    const points = [...text], where = make("p", { class: "written" });
    let at = 0;
    for (const { start, end, label } of entities.filter((each) => each.start !== null).sort((a, b) => a.start - b.start)) {
      if (start < at) continue;
      where.append(points.slice(at, start).join(""), make("mark", {}, points.slice(start, end).join(""), make("small", {}, label)));
      at = end;
    }
    where.append(points.slice(at).join(""));
    return where;
  }

  function boxes(url, objects) {
    const place = make("div", { class: "picture" }), image = make("img", { src: url, alt: "the image that was sent" });
    image.addEventListener("load", () => {
      const { naturalWidth: width, naturalHeight: height } = image;
      const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
      const size = Math.max(10, height / 30);
      for (const { bbox: [x1, y1, x2, y2], label, score } of objects) {
        svg.append(shape("rect", { x: x1, y: y1, width: x2 - x1, height: y2 - y1 }), shape("text", { x: x1 + 4, y: Math.max(size, y1 + size), "font-size": size }, `${label} ${(score * 100).toFixed(0)} %`));
      }
      place.append(svg);
    });
    place.append(image);
    return place;
  }

  function extracted(answer, texts, image) {
    return answer.items.flatMap((item, n) => {
      const parts = [], text = texts[n] ?? "";
      if (item.error) parts.push(make("p", { class: "error" }, item.error.message));
      if (item.entities.length || (text && !item.classifications.length && !item.objects.length)) parts.push(highlighted(text, item.entities));
      if (item.entities.length) parts.push(table(["entity", "label", "from", "to", "score"], item.entities.map((e) => [e.text, e.label, e.start, e.end, e.score])));
      if (image && item.objects.length) parts.push(boxes(image, item.objects));
      if (item.objects.length) parts.push(table(["object", "score", "x1, y1, x2, y2"], item.objects.map((o) => [o.label, o.score, o.bbox.map(Math.round).join(", ")])));
      if (item.classifications.length) parts.push(table(["class", "score"], item.classifications.slice(0, 20).map((c) => [c.label, c.score])));
      if (item.relations.length) parts.push(table(["from", "relation", "to"], item.relations.map((r) => [r.head, r.relation, r.tail])));
      const { markdown, text: plain, ...rest } = item.data ?? {};
      if (markdown ?? plain) parts.push(make("pre", {}, markdown ?? plain));
      if (Object.keys(rest).length) parts.push(make("pre", {}, JSON.stringify(rest, null, 2).slice(0, 20000)));
      return parts;
    });
  }

  return { make, vectors, likeness, ranked, extracted };
})();
