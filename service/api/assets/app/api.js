/** Requests to the service: the token, problems as errors, streams of events, uploads that say how far they are. */

const TOKEN = "relaxd.token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

/** An answer that is no success: the problem document's members, as the service describes them. */
export class Problem extends Error {
  constructor(document, status) {
    super(document.detail || document.title || `the service answered ${status}`);
    this.status = status;
    this.document = document;
  }

  get hint() {
    return this.document.hint;
  }

  get code() {
    return this.document.code;
  }
}

export const headers = (more = {}) => {
  const text = token.get();
  return text ? { Authorization: `Bearer ${text}`, ...more } : { ...more };
};

/** The response; throws Problem for a refusal and for a service that is away. A token that is refused
 * signs out, unless it is only tried. */
export async function ask(path, { method = "GET", json, headers: more = {}, signal, trying } = {}) {
  const options = { method, signal, headers: headers(more), credentials: "omit" };
  if (json !== undefined) {
    options.body = JSON.stringify(json);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw away();
  }
  if (answer.status === 401 && !trying) signedOut();
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

const signedOut = () => token.get() && dispatchEvent(new Event("relaxd:signedout"));

export const get = async (path, options) => (await ask(path, options)).json();

export const post = async (path, json, options) =>
  (await ask(path, { ...options, method: "POST", json })).json();

const away = () =>
  new Problem(
    { detail: "The service cannot be reached.", hint: "Check that relaxd runs and that this machine reaches it.", code: "away" },
    0,
  );

async function problemOf(answer) {
  const document = await answer.json().catch(() => ({}));
  return new Problem(document, answer.status);
}

/**
 * Server-sent events by fetch, since EventSource sends no token. `on(type, data)` gets each; returns
 * when the stream ends. Throws Problem, and AbortError once `signal` is given.
 */
export async function follow(path, on, { signal, after } = {}) {
  const more = after ? { "Last-Event-ID": String(after) } : {};
  const answer = await ask(path, { signal, headers: { Accept: "text/event-stream", ...more } });
  if (answer.status === 204) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) tell(part, on);
  }
}

function tell(part, on) {
  let type = "message";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) on(type, JSON.parse(data));
}

/** Whether whoever signed in may: an admin may everything. */
export const may = (who, scope) => !scope || who.scopes.includes(scope) || who.scopes.includes("admin");

/** Posts a form and says how much of it is sent, which fetch does not. */
export function upload(path, form, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    request.upload.onload = () => onProgress(1, 1);
    request.onload = () => {
      if (request.status === 401) signedOut();
      if (request.status < 300) resolve(request.response);
      else reject(new Problem(request.response || {}, request.status));
    };
    request.onerror = () => reject(away());
    request.onabort = () => reject(new DOMException("aborted", "AbortError"));
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** Has the browser keep a file that needs a token: streamed to disk where it can, else by memory. */
export async function download(path, name, { accept, onProgress = () => {} } = {}) {
  const more = accept ? { Accept: accept } : {};
  const answer = await ask(path, { headers: more });
  const total = Number(answer.headers.get("Content-Length")) || 0;
  const parts = [];
  const reader = answer.body.getReader();
  let read = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    read += value.length;
    onProgress(read, total);
  }
  const url = URL.createObjectURL(new Blob(parts));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
