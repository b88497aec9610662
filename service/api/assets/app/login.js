/** Signing in: at an issuer, or with a token; either stays in this tab. */
import { html, useState } from "./lib.js";
import { get, token } from "./api.js";
import { begin, ended, forgetEnd, host, isSecure, logins } from "./oidc.js";
import { Icon, useLoaded } from "./ui.js";

export function Login({ theme, turn, onDone, failed }) {
  const [trouble, setTrouble] = useState(null);
  const [busy, setBusy] = useState(false);
  const { data: ways = [] } = useLoaded(logins, []);
  const [last] = useState(ended);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    token.set(new FormData(event.target).get("token").trim());
    try {
      onDone(await get("v1/whoami", { trying: true }));
      forgetEnd();
    } catch (error) {
      token.clear();
      setTrouble(error.status === 401 ? "The service does not take this token." : error.message);
      setBusy(false);
    }
  };
  return html`<main class="login" id="main">
    <button type="button" class="copy theme" onClick=${turn} aria-label=${theme === "dark" ? "Light colours" : "Dark colours"}>
      <${Icon} name=${theme === "dark" ? "sun" : "moon"} />
    </button>
    <div class="card">
      <p class="brand large" aria-hidden="true">relaxd<span class="dim">[<i>n</i>]</span></p>
      <h1>Sign in to relaxd</h1>
      ${failed ? html`<p class="note bad" role="alert">${[failed.message, failed.hint].filter(Boolean).join(". ")}</p>` : last && html`<p class="note" role="status">${last.why}</p>`}
      ${ways.map((way) => html`<${Issuer} key=${way.issuer + way.client_id} way=${way} again=${Boolean(last?.wished)} />`)}
      ${ways.length > 0 && html`<p class="or quiet" aria-hidden="true">or</p>`}
      <form onSubmit=${enter}>
        <p class="soft">An administrator makes tokens with <code>relaxd token create</code>. The token stays in this tab and is gone when you close it.</p>
        <label for="token">Token</label>
        <input class="field mono" id="token" name="token" type="password" autocomplete="off" spellcheck=${false} required
          aria-invalid=${trouble ? "true" : undefined} aria-describedby=${trouble ? "refused" : undefined} autofocus />
        ${trouble && html`<p class="bad" id="refused" role="alert">${trouble}</p>`}
        <button type="submit" class=${`button ${ways.length ? "" : "main"}`} disabled=${busy}>${ways.length ? "Sign in with a token" : "Sign in"}</button>
      </form>
    </div>
  </main>`;
}

/** The button of one issuer; that of an issuer that was away asks for it once more. */
function Issuer({ way, again }) {
  const [trouble, setTrouble] = useState(null);
  const go = async () => {
    try {
      const found = way.authorization_url ? way : (await logins()).find((one) => one.issuer === way.issuer && one.client_id === way.client_id);
      if (found?.authorization_url) await begin(found, { again });
      else setTrouble(`The service cannot reach ${host(way.issuer)}. Try again in a minute, or sign in with a token.`);
    } catch (error) {
      setTrouble(error.message);
    }
  };
  if (!isSecure()) return html`<p class="note warn">Signing in with ${host(way.issuer)} takes HTTPS, and this page came over plain HTTP. Open it by its https address, or sign in with a token.</p>`;
  return html`<button type="button" class="button main" onClick=${go}>Sign in with ${host(way.issuer)}</button>
    ${trouble && html`<p class="bad" role="alert">${trouble}</p>`}`;
}
