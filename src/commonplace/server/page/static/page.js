// Keyboard shortcuts and small comforts. Every screen works without this file.
"use strict";

(() => {
  const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;
  const rows = () => [...document.querySelectorAll("[data-row]")];
  const linkOf = (row) => (row.matches("a") ? row : row.querySelector("a"));
  let wantsScreen = false;

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
    linkOf(next)?.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function search() {
    const box = document.querySelector("[data-search]");
    if (box) { box.focus(); box.select(); } else { document.querySelector("[data-go=s]")?.click(); }
  }

  const keys = {
    "/": search,
    j: () => move(1),
    k: () => move(-1),
    x: () => document.activeElement?.closest("[data-row]")?.querySelector("input[type=checkbox]")?.click(),
    u: () => document.querySelector("[data-undo]")?.click(),
    e: () => document.querySelector("[data-edit]")?.click(),
    g: () => { wantsScreen = true; },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (wantsScreen) {
      wantsScreen = false;
      document.querySelector(`[data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    if (Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-close]")) return;
    event.preventDefault();
    event.target.closest("[data-toast]")?.remove();
  });

  // A button copies the text before it, where the browser has a clipboard: with https, or on this computer.
  for (const button of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
  // One box ticks all rows of a table; without this script it does nothing, and is hidden.
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-all]")) return;
    const boxes = event.target.form.querySelectorAll("[data-row] input[type=checkbox]");
    for (const box of boxes) box.checked = event.target.checked;
  });
  for (const box of document.querySelectorAll("[data-all]")) box.hidden = false;

  // The toast is shown once: a reload or a bookmark of this address does not show it again.
  if (document.querySelector("[data-toast]")) {
    const address = new URL(location.href);
    address.searchParams.delete("done");
    history.replaceState(history.state, "", address);
  }

  // The slider goes to its moment when it is let go. Until then it shows what that would be.
  for (const bar of document.querySelectorAll("[data-time-bar]")) {
    bar.querySelector("button").hidden = true;
    bar.querySelector("input[type=range]").addEventListener("change", () => bar.requestSubmit());
  }

  // What is new is counted, and shown when the person asks. Only a tab in front listens: a browser has few connections.
  const pill = document.querySelector("[data-live]");
  let source = null;

  function ignore() {
    source?.close();
    source = null;
  }

  function listen() {
    if (source || document.hidden || pill.dataset.isFull) return;
    source = new EventSource(pill.dataset.live);
    source.addEventListener("message", ({ data }) => {
      pill.querySelector("[data-count]").textContent = `${data} new`;
      pill.hidden = false;
      if (data.endsWith("+")) { pill.dataset.isFull = "true"; ignore(); }
    });
  }

  if (pill) {
    document.addEventListener("visibilitychange", () => (document.hidden ? ignore() : listen()));
    window.addEventListener("pagehide", ignore);
    window.addEventListener("pageshow", listen);
    pill.addEventListener("click", (event) => { event.preventDefault(); location.reload(); });
    listen();
  }
})();
