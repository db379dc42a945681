// Light, dark, or as the system has it; remembered where the browser allows that.

const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme-button");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("opsmith-theme", theme);
  } catch { /* a page opened from a file may have no storage */ }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

let remembered = null;
try {
  remembered = localStorage.getItem("opsmith-theme");
} catch { /* as above */ }
setTheme(THEMES.includes(remembered) ? remembered : "auto");
themeButton.addEventListener("click", nextTheme);
