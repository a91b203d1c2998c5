// Light, dark, or as the system has it. The choice is kept in this browser.

const NAME = "instep-theme";
export const THEMES = ["system", "light", "dark"];

export function theme() {
  const kept = localStorage.getItem(NAME);
  return THEMES.includes(kept) ? kept : "system";
}

export function apply(name = theme()) {
  if (name === "system") {
    localStorage.removeItem(NAME);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(NAME, name);
    document.documentElement.dataset.theme = name;
  }
}
