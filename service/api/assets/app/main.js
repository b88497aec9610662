/** The frame of the page: signing in, navigation, theme, and which page is shown. */
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { get, may, token } from "./api.js";
import { useRoute } from "./router.js";
import { useQueue, watch } from "./store.js";
import { Icon, Loading, Trouble, useTicks } from "./ui.js";
import { count } from "./format.js";
import { Login } from "./login.js";
import { begin, claims, clock, endOf, finish, leave, logins } from "./oidc.js";
import { Jobs } from "./jobs.js";
import { Job } from "./job.js";
import { Compile } from "./compile.js";
import { Build } from "./build.js";
import { Diff } from "./diff.js";
import { Targets } from "./targets.js";
import { Admin } from "./admin.js";
import { Models } from "./models.js";
import { Model } from "./model.js";
import { Reference } from "./reference.js";

const SOON = 2 * 60_000;
const PAGES = { jobs: Jobs, job: Job, compile: Compile, build: Build, diff: Diff, targets: Targets, models: Models, model: Model, admin: Admin, reference: Reference };
const HERE = { job: "jobs", build: "jobs", model: "models" };
const LINKS = [
  ["jobs", "./#/", "Jobs", "read"],
  ["models", "./#/models", "Models", "read", "pull"],
  ["compile", "./#/compile", "Compile", "submit"],
  ["diff", "./#/diff", "Compare", "pull"],
  ["targets", "./#/targets", "Targets", "read"],
  ["admin", "./#/admin", "Admin", "admin"],
  ["reference", "docs", "API", null],
];

function useTheme() {
  const [theme, setTheme] = useState(
    () => localStorage.getItem("relaxd.theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"),
  );
  document.documentElement.dataset.theme = theme;
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("relaxd.theme", next);
    setTheme(next);
  };
  return [theme, turn];
}

function App({ failed }) {
  const [theme, turn] = useTheme();
  const [who, setWho] = useState(null);
  const [refused, setRefused] = useState(null);
  const [turnCount, setTurn] = useState(0);
  useEffect(() => {
    get("v1/whoami").then(setWho, setRefused);
    const out = () => leave();
    addEventListener("relaxd:signedout", out);
    return () => removeEventListener("relaxd:signedout", out);
  }, [turnCount]);
  useEffect(() => (who && may(who, "read") ? watch() : undefined), [who]);
  if (!who && refused?.status === 401) {
    return html`<${Login} theme=${theme} turn=${turn} failed=${failed} onDone=${(found) => (setRefused(null), setWho(found))} />`;
  }
  const retry = () => (setRefused(null), setTurn(turnCount + 1));
  return html`<${Frame} who=${who} theme=${theme} turn=${turn} trouble=${refused} failed=${failed} retry=${retry} />`;
}

function Frame({ who, theme, turn, trouble, failed, retry }) {
  const route = useRoute();
  const main = useRef();
  const first = useRef(true);
  useEffect(() => {
    // A reader of the screen hears the new page's heading; the first one it reads by itself.
    if (!first.current) main.current?.focus();
    first.current = false;
    scrollTo(0, 0);
  }, [route.page, route.arguments.join("/")]);
  const Page = PAGES[route.page];
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to content</a>
    <header class="top"><div>
      <a class="brand" href="./#/" aria-label="relaxd, all jobs">relaxd<span class="dim" aria-hidden="true">[<i>n</i>]</span></a>
      <nav class="nav" aria-label="Main">
        ${LINKS.filter(([, , , ...scopes]) => who && scopes.some((scope) => may(who, scope))).map(
          ([key, address, word]) => html`<a key=${key} href=${address} aria-current=${(HERE[route.page] || route.page) === key ? "page" : undefined}>${word}</a>`,
        )}
      </nav>
      <div class="end">
        ${who && may(who, "read") && html`<${Pulse} />`}
        ${who && who.tenant !== "default" && html`<span class="tag" title="The tenant of your token">${who.tenant}</span>`}
        <button type="button" class="copy" onClick=${turn} aria-label=${theme === "dark" ? "Light colours" : "Dark colours"}>
          <${Icon} name=${theme === "dark" ? "sun" : "moon"} />
        </button>
        ${token.get() && html`<button type="button" class="copy" onClick=${() => leave({ wished: true })} aria-label="Sign out"><${Icon} name="leave" /></button>`}
      </div>
    </div></header>
    <main id="main" tabindex="-1" ref=${main}>
      <${Ending} failed=${failed} />
      ${trouble ? html`<${Trouble} error=${trouble} again=${retry} />` : who ? html`<${Page} key=${route.arguments.join("/")} who=${who} route=${route} />` : html`<${Loading} />`}
    </main>
    <footer class="foot">
      <span>relaxd compiles a model once per target, for every size of its dims.</span>
      <a href="docs">HTTP API</a>
      <a href="openapi.json">OpenAPI</a>
    </footer>
  </div>`;
}

/** Says before a sign-in ends, and after, that it does: until then what was typed can be sent. */
function Ending({ failed }) {
  const end = endOf(token.get());
  const [now, setNow] = useState(Date.now);
  const [trouble, setTrouble] = useState(failed?.message);
  useTicks(() => setNow(Date.now()), 1000);
  if (!trouble && !(now >= end - SOON)) return null;
  const again = async () => {
    const { iss, aud } = claims(token.get());
    try {
      const way = (await logins()).find((one) => one.issuer === iss && [aud].flat().includes(one.client_id));
      if (way?.authorization_url) await begin(way);
      else leave();
    } catch (error) {
      setTrouble(error.message);
    }
  };
  const text = now < end ? `Your sign-in ends at ${clock(end)}. Send what you have typed before, or sign in again.` : `Your sign-in ended at ${clock(end)}. Sign in again to go on.`;
  return html`<div class="note warn ending" role="status"><p class="body">${trouble || text}</p>
    ${end && html`<button type="button" class="button small" onClick=${again}>Sign in again</button>`}</div>`;
}

function Pulse() {
  const queue = useQueue();
  if (!queue) return null;
  return html`<span class="pulse num" title="Your running and queued builds, and the running workers">
    <span><b>${count(queue.running)}</b> running</span>
    <span><b>${count(queue.queued)}</b> queued</span>
    <span><b>${count(queue.workers)}</b> ${queue.workers === 1 ? "worker" : "workers"}</span>
  </span>`;
}

const root = document.getElementById("app");
render(html`<${Loading} />`, root);
render(html`<${App} failed=${await finish()} />`, root);
