/** Signing in with a token, which stays in this tab. */
import { html, useState } from "./lib.js";
import { get, token } from "./api.js";
import { Icon } from "./ui.js";

export function Login({ theme, turn, onDone }) {
  const [trouble, setTrouble] = useState(null);
  const [busy, setBusy] = useState(false);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    token.set(new FormData(event.target).get("token").trim());
    try {
      onDone(await get("v1/whoami", { trying: true }));
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
    <form class="card" onSubmit=${enter}>
      <p class="brand large" aria-hidden="true">relaxd<span class="dim">[<i>n</i>]</span></p>
      <h1>Sign in to relaxd</h1>
      <p class="soft">An administrator makes tokens with <code>relaxd token create</code>. The token stays in this tab and is gone when you close it.</p>
      <label for="token">Token</label>
      <input class="field mono" id="token" name="token" type="password" autocomplete="off" spellcheck=${false} required
        aria-invalid=${trouble ? "true" : undefined} aria-describedby=${trouble ? "refused" : undefined} autofocus />
      ${trouble && html`<p class="bad" id="refused" role="alert">${trouble}</p>`}
      <button type="submit" class="button main" disabled=${busy}>Sign in</button>
    </form>
  </main>`;
}
