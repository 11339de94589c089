// What the stream tells, put into the page: cells by their ids, how old it all is, and what was said.
(() => {
  "use strict";
  const STALE = 3000, DEAD = 10000, SAID = 10 * 60 * 1000;
  const age = document.getElementById("age");
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  const dialog = document.getElementById("dialog");
  let heard = performance.now();

  function put(id, value) {
    const element = document.getElementById(id);
    if (!element) return;
    if (element.tagName === "rect") {
      element.setAttribute("x", value[0]);
      element.setAttribute("width", value[1]);
    } else if (Array.isArray(value)) {
      [element.dataset.state, element.dataset.pinned, element.dataset.paused] = value;
      const word = element.querySelector(".word"), mark = element.querySelector(".mark");
      if (word) word.textContent = value[0];
      if (mark) mark.className = `mark ${value[0]}`;
    } else if (element.tagName === "INPUT") {
      element.value = value;
    } else if (element.tagName === "TIME") {
      element.setAttribute("datetime", value);
      element.title = value.replace("T", " ").replace("Z", " UTC");
      relate(element);
    } else {
      element.textContent = value;
      if (id === "s-intake") element.dataset.intake = value;
      if (id.endsWith("-said")) element.closest(".legend li")?.classList.toggle("nothing", value === "0 B");
    }
  }

  // Times are shown relative to now; the absolute one is in the title.
  function relate(element) {
    const at = Date.parse(element.getAttribute("datetime"));
    if (Number.isNaN(at)) return;
    const seconds = Math.max(0, (Date.now() - at) / 1000);
    const [size, unit] = seconds < 60 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
    element.textContent = seconds < 2 ? "just now" : `${Math.floor(seconds / size)} ${unit} ago`;
  }

  const relateAll = () => document.querySelectorAll("time[datetime]").forEach(relate);

  function look() {
    if (!age) return;
    const since = performance.now() - heard;
    const state = document.hidden ? "paused" : since > DEAD ? "dead" : since > STALE ? "stale" : "fresh";
    if (state !== age.dataset.age || since > STALE) {
      age.dataset.age = document.body.dataset.age = state;
      age.textContent = { fresh: "live", paused: "paused" }[state] ?? `${Math.floor(since / 1000)} s old`;
    }
  }

  function listen(name, act) {
    live?.addEventListener(name, (event) => {
      heard = performance.now();
      act(event.detail.data);
      look();
    });
  }

  function tell(text) {
    const toast = document.createElement("div");
    toast.className = "toast";
    toast.textContent = text;
    said.replaceChildren(toast);
  }

  listen("cells", (data) => {
    for (const [id, value] of Object.entries(JSON.parse(data))) put(id, value);
  });
  listen("beat", () => {});
  listen("points", (data) => {
    const { series, columns } = JSON.parse(data);
    document.dispatchEvent(new CustomEvent("serai:points", { detail: { series, columns } }));
  });

  // A stream that is refused leads to where one logs in; one that broke is tried again by the extension.
  live?.addEventListener("htmx:sse:error", (event) => {
    if ([401, 403].includes(event.detail.status)) location.reload();
  });
  let connections = 0;
  live?.addEventListener("htmx:sse:after:connection", () => {
    heard = performance.now();
    connections += 1;
    if (connections > 1) document.dispatchEvent(new CustomEvent("serai:again"));
  });

  // What is no page is an error for programs: its message is what a person is told.
  document.addEventListener("htmx:after:request", (event) => {
    const { response, text } = event.detail.ctx;
    if (!response || (response.headers.get("Content-Type") ?? "").includes("text/html")) return;
    if (response.status < 400) return;
    event.preventDefault();
    let message = "That did not work.";
    try { message = JSON.parse(text).detail.message; } catch { /* not ours */ }
    tell(message);
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.target.closest?.("form, a")) tell("The server does not answer."); // of panels the age tells
  });

  new MutationObserver(() => {
    const full = document.getElementById("dialog-body").childElementCount > 0;
    if (full && !dialog.open) dialog.showModal();
  }).observe(document.getElementById("dialog-body"), { childList: true });
  dialog.addEventListener("close", () => document.getElementById("dialog-body").replaceChildren());
  document.addEventListener("acted", () => dialog.close());

  let forget;
  new MutationObserver(() => {
    clearTimeout(forget);
    if (!said.childElementCount) return;
    forget = setTimeout(() => said.replaceChildren(), said.querySelector("[data-undo]") ? SAID : 8000);
  }).observe(said, { childList: true });

  // htmx looks at the page by a timer of its own, maybe before the extension is there: so after both.
  setTimeout(() => {
    if (!live) return;
    live.setAttribute("hx-sse:connect", live.dataset.connect);
    htmx.process(live);
  });

  document.addEventListener("htmx:after:swap", relateAll);
  document.addEventListener("visibilitychange", () => { heard = performance.now(); look(); });
  relateAll();
  setInterval(relateAll, 5000);
  setInterval(look, 500);
})();
