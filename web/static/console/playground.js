// Calls a model as any client does, and says the same call for other clients.
(() => {
  "use strict";
  const form = document.getElementById("play"), base = document.body.dataset.base;
  const answer = document.getElementById("play-answer"), timing = document.getElementById("play-timing");
  const model = form.elements.model, task = form.elements.task, output = form.elements.output;
  const SAMPLES = {
    encode: "The cat sat on the mat.\nA kitten rested on the rug.\nStocks fell sharply on Monday.",
    score: "Refunds are paid within five days.\nThe office is closed on Sundays.\nTo return an item, write to support.",
    extract: "Ada Lovelace wrote to Charles Babbage in London on 5 July 1843.",
    generate: "Write one sentence about lighthouses.",
  };
  let copying = "curl", running = null;

  const option = () => model.selectedOptions[0];
  const texts = () => form.elements.text.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const takes = (kind) => option().dataset.inputs.split(" ").includes(kind);
  const media = () => ["image", "document", "audio"].find(takes);

  function shown() {
    const fill = (select, names) => select.replaceChildren(...names.filter(Boolean).map((name) => drawing.make("option", {}, name)));
    fill(task, option().dataset.tasks.split(" "));
    fill(output, option().dataset.outputs.split(" "));
    form.elements.labels.value = "";
    form.elements.labels.placeholder = option().dataset.labels;
    arrange();
  }

  function arrange() {
    form.querySelectorAll("[data-for]").forEach((part) => { part.hidden = part.dataset.for !== task.value; });
    const file = media();
    form.querySelector("[data-input=file]").hidden = !file;
    form.querySelector("[data-input=text]").hidden = !takes("text");
    document.getElementById("play-file-label").textContent = file === "document" ? "Document" : file === "audio" ? "Sound" : "Image";
    form.elements.file.accept = file === "image" || file === "audio" ? `${file}/*` : "";
    const many = task.value === "encode" || task.value === "score";
    document.getElementById("play-text-label").textContent = task.value === "generate" ? "Prompt" : many ? "Texts, one a line" : "Text";
    const text = form.elements.text;
    if (!text.value || Object.values(SAMPLES).includes(text.value)) text.value = SAMPLES[task.value] ?? "";
    say();
  }

  function items() {
    const many = task.value === "encode" || task.value === "score";
    return (many ? texts() : [form.elements.text.value]).map((text) => ({ text }));
  }

  function body(file) {
    const labels = form.elements.labels.value.split(",").map((label) => label.trim()).filter(Boolean);
    const sent = file ? [takes("image") ? { images: [file] } : { [media()]: file }] : items();
    switch (task.value) {
      case "score": return { query: { text: form.elements.query.value }, items: sent };
      case "extract": return { items: sent, params: labels.length ? { labels } : {} };
      case "generate": return { prompt: form.elements.text.value, max_new_tokens: Number(form.elements.tokens.value), stream: true };
      default: return { items: sent, params: { output_types: [output.value] } };
    }
  }

  async function read(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let n = 0; n < bytes.length; n += 32768) text += String.fromCharCode(...bytes.subarray(n, n + 32768));
    return { data: btoa(text), format: (file.name.split(".").at(-1) || file.type.split("/").at(-1)).toLowerCase() };
  }

  async function run(event) {
    event?.preventDefault();
    running?.abort();
    running = new AbortController();
    answer.replaceChildren(drawing.make("p", { class: "empty" }, "…"));
    timing.textContent = "";
    const chosen = form.elements.file.files[0];
    const file = chosen && !form.querySelector("[data-input=file]").hidden ? chosen : null;
    const began = performance.now();
    try {
      const sent = body(file ? await read(file) : null);
      const response = await fetch(`${base}/v1/${task.value}/${model.value}`, {
        method: "POST", body: JSON.stringify(sent), signal: running.signal,
        headers: { "Content-Type": "application/json", Accept: task.value === "generate" ? "text/event-stream" : "application/json" },
      });
      if (!response.ok) {
        const { detail } = await response.json();
        answer.replaceChildren(drawing.make("p", { class: "error" }, `${detail.code}: ${detail.message}`));
        return;
      }
      if (task.value === "generate") await written(response);
      else draw(await response.json(), file);
      told(response, performance.now() - began);
    } catch (error) {
      if (error.name !== "AbortError") answer.replaceChildren(drawing.make("p", { class: "error" }, "The server does not answer."));
    }
  }

  function draw(said, file) {
    const sent = items().map((item) => item.text);
    if (task.value === "score") answer.replaceChildren(...drawing.ranked(said, sent));
    else if (task.value === "extract") {
      const image = file && takes("image") ? new FileReader() : null;
      const finish = (url) => answer.replaceChildren(...drawing.extracted(said, file ? [] : sent, url));
      if (!image) return finish(null);
      image.addEventListener("load", () => finish(image.result)); // as data:, which the page's policy lets in
      image.readAsDataURL(file);
    } else answer.replaceChildren(...drawing.vectors(said, file ? [] : sent), ...drawing.likeness(said));
  }

  async function written(response) {
    const text = drawing.make("p", { class: "written" });
    answer.replaceChildren(text);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.filter((each) => each.startsWith("data: {"))) {
        const event = JSON.parse(line.slice(6));
        text.append(event.text_delta);
        if (event.error) answer.append(drawing.make("p", { class: "error" }, `${event.error.code}: ${event.error.message}`));
        else if (event.done) answer.append(drawing.make("p", { class: "soft" }, `${event.finish_reason}; ${event.usage.prompt_tokens} tokens in, ${event.usage.completion_tokens} out`));
      }
    }
  }

  function told(response, took) {
    const spent = (name, label) => { const ms = response.headers.get(name); return ms === null ? [] : [`${label} ${Number(ms).toFixed(1)} ms`]; };
    const cold = response.headers.get("X-Serai-Cold") === "true" ? ["cold"] : [];
    const device = response.headers.get("X-Serai-Device");
    timing.textContent = [`${took.toFixed(0)} ms here`, ...spent("X-Queue-Time", "queue"), ...spent("X-Load-Time", "load"), ...spent("X-Inference-Time", "run"), ...(device ? [`on ${device}`] : []), ...cold].join(", ");
  }

  // How others would say it. Quotes are the shell's and Python's own.
  const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const python = (value) => JSON.stringify(value).replaceAll(":true", ":True").replaceAll(":false", ":False").replaceAll(":null", ":None");
  const SAYS = {
    curl: (url, sent) => `curl ${url}/v1/${task.value}/${model.value} \\\n  -H 'Content-Type: application/json' -H 'Accept: application/json' \\\n  -d ${shell(JSON.stringify(sent))}`,
    sdk: (url, sent) => {
      const head = `from sie_sdk import SIEClient\nfrom sie_sdk.types import Item\n\nclient = SIEClient(${python(url)})\n`;
      const list = (all) => `[${(all ?? []).map((item) => `Item(text=${python(item.text ?? "")})`).join(", ")}]`;
      const printed = (call) => `${head}answer = client.${call}\nprint(answer)`;
      const name = python(model.value);
      if (task.value === "score") return printed(`score(${name}, Item(text=${python(sent.query.text)}), ${list(sent.items)})`);
      if (task.value === "extract") return printed(`extract(${name}, ${list(sent.items)}${sent.params.labels ? `, labels=${python(sent.params.labels)}` : ""})`);
      if (task.value === "generate") return printed(`generate(${name}, ${python(sent.prompt)}, max_new_tokens=${sent.max_new_tokens})`);
      return printed(`encode(${name}, ${list(sent.items)}, output_types=${python(sent.params.output_types)})`);
    },
    openai: (url, sent) => {
      const head = `from openai import OpenAI\n\nclient = OpenAI(base_url=${python(`${url}/v1`)}, api_key="…")\n`;
      const name = python(model.value);
      if (task.value === "encode") return `${head}answer = client.embeddings.create(model=${name}, input=${python((sent.items ?? []).map((item) => item.text ?? ""))})\nprint(answer.data[0].embedding)`;
      if (task.value === "generate") return `${head}answer = client.chat.completions.create(\n    model=${name},\n    messages=[{"role": "user", "content": ${python(sent.prompt)}}],\n    max_tokens=${sent.max_new_tokens},\n)\nprint(answer.choices[0].message.content)`;
      return `# The OpenAI API has no call for ${task.value}; use curl or sie-sdk.`;
    },
  };

  function say() {
    const sent = body(form.elements.file.files[0] || !takes("text") ? { data: "<base64>", format: "…" } : null);
    delete sent.stream;
    document.getElementById("play-code").textContent = SAYS[copying](location.origin + base, sent);
  }

  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => {
    copying = button.dataset.copy;
    document.querySelectorAll("[data-copy]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    say();
  }));
  const copy = document.getElementById("play-copy");
  copy.addEventListener("click", async () => {
    const code = document.getElementById("play-code");
    getSelection().selectAllChildren(code);
    try { await navigator.clipboard.writeText(code.textContent); } catch { document.execCommand("copy"); } // over plain HTTP there is only the old way
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  model.addEventListener("change", shown);
  task.addEventListener("change", arrange);
  form.addEventListener("input", say);
  form.addEventListener("submit", run);
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event); });
  shown();
})();
