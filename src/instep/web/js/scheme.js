// Before the first paint: the colours that were chosen in this browser, if any.
const chosen = localStorage.getItem("instep-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
