// The API to read and to try, by Swagger UI. The page's token goes with each request, if this tab has one.

import { token } from "./token.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

/** Swagger UI has dark colours for a root of this class. */
function colour() {
  const chosen = document.documentElement.dataset.theme;
  document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : dark.matches);
}

function withToken(request) {
  if (token() && !request.headers.Authorization) request.headers.Authorization = `Bearer ${token()}`;
  return request;
}

colour();
dark.addEventListener("change", colour);
window.SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  filter: true,
  requestInterceptor: withToken,
  // Nothing of this page asks another host.
  validatorUrl: null,
});
