// Before the first paint: the colour scheme and the language that the person chose, so that nothing flashes.
(() => {
  let chosen = null;
  try {
    chosen = JSON.parse(localStorage.getItem("lineup.settings") || "{}");
  } catch {
    chosen = {};
  }
  const dark =
    chosen.scheme === "dark" ||
    (chosen.scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
  const language = chosen.language || navigator.language || "en";
  document.documentElement.lang = language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";
})();
