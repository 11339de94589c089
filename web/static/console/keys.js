// Keys: for rows and what is done to them. Ignored while somebody types, and while a dialog is open.
(() => {
  "use strict";
  const keys = document.getElementById("keys");
  const rows = () => [...document.querySelectorAll("[data-rows] tbody tr[tabindex]")];
  const chosen = () => document.querySelector("tr[data-chosen]") ?? document.querySelector("[data-row]");

  function choose(row) {
    rows().forEach((each) => each.toggleAttribute("data-chosen", each === row));
  }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.dataset.chosen !== undefined);
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    choose(next);
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  const visible = (element) => element && element.getClientRects().length > 0;
  const does = {
    "/": () => { const field = document.querySelector("[data-filter]"); field?.focus(); field?.select?.(); },
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => chosen()?.matches("tr") && document.activeElement === chosen() && move(1),
    ArrowUp: () => chosen()?.matches("tr") && document.activeElement === chosen() && move(-1),
    p: () => [...(chosen()?.querySelectorAll(".pin button") ?? [])].find(visible)?.click(),
    a: () => (chosen()?.querySelector(".more") ?? document.querySelector("[data-act]"))?.click(),
    u: () => document.querySelector("#said [data-undo]")?.click(),
    Enter: () => document.activeElement?.matches("tr[data-chosen]") && chosen().querySelector("th a")?.click(),
    "?": () => keys.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    const act = does[event.key];
    if (!act || (event.key === "Enter" && !event.target.matches("tr"))) return;
    if (!event.key.startsWith("Arrow")) event.preventDefault();
    act();
  });
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest?.("[data-rows] tbody tr[tabindex]");
    if (row) choose(row);
  });
  document.getElementById("help").addEventListener("click", () => keys.showModal());
})();
