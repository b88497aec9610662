/** Signing in at an OpenID Connect issuer: the authorization code flow with PKCE, and when it ends.
 *
 * The token is kept where other tokens are, in sessionStorage: memory alone would lose it with every reload,
 * and localStorage and cookies outlive the tab. State, nonce and verifier of a sign-in under way are there
 * too, since the issuer's page takes the place of this one. */
import { get, post, token } from "./api.js";

const PENDING = "relaxd.sign-in";
const ENDED = "relaxd.ended";

export const host = (issuer) => (URL.canParse(issuer) ? new URL(issuer).host : String(issuer));

/** Whether the browser has what the flow takes: pages that come over plain HTTP have no SHA-256. */
export const isSecure = () => Boolean(globalThis.crypto?.subtle);

export const logins = async (signal) => (await get("v1/sign-in", { signal })).logins;

const encode = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encode(crypto.getRandomValues(new Uint8Array(32)));
const sha256 = async (text) => encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));

/** The claims of a token, null if it is none of an issuer. Only the service checks its signature. */
export function claims(text) {
  const parts = (text || "").split(".");
  if (parts.length !== 3) return null;
  try {
    return JSON.parse(atob(parts[1].replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    return null;
  }
}

/** When the sign-in ends, in milliseconds; NaN for a token of the service's own. */
export const endOf = (text) => claims(text)?.exp * 1000;

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

/** Goes to the issuer's page. `again`: have it ask who is there, also of whoever is signed in. */
export async function begin(login, { again = false } = {}) {
  const pending = {
    issuer: login.issuer,
    client_id: login.client_id,
    redirect_uri: new URL("./", location.origin + location.pathname).href,
    state: random(),
    nonce: random(),
    verifier: random(),
    back: location.pathname + location.hash,
  };
  const address = new URL(login.authorization_url);
  const query = {
    response_type: "code",
    client_id: login.client_id,
    redirect_uri: pending.redirect_uri,
    scope: login.scopes.join(" "),
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: await sha256(pending.verifier),
    code_challenge_method: "S256",
    ...(again ? { prompt: "login" } : {}),
  };
  for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(address.href);
}

/** Ends a sign-in where the issuer's page has sent the browser back; why it failed, or null. */
export async function finish() {
  const query = new URLSearchParams(location.search);
  if (!query.has("state") || !(query.has("code") || query.has("error"))) return null;
  const pending = JSON.parse(sessionStorage.getItem(PENDING) || "null");
  sessionStorage.removeItem(PENDING);
  // A code is good once: it stays neither in the address nor in the history.
  history.replaceState(null, "", pending?.back || location.pathname);
  try {
    token.set(await traded(query, pending));
    forgetEnd();
    return null;
  } catch (error) {
    return error;
  }
}

async function traded(query, pending) {
  if (!pending || query.get("state") !== pending.state) {
    throw new Error("This tab did not begin that sign-in, so it was not used. Sign in again.");
  }
  const { issuer, client_id, verifier, redirect_uri } = pending;
  // RFC 9207: a code of another issuer than the one that was asked.
  if (query.has("iss") && query.get("iss") !== issuer) {
    throw new Error(`Another issuer than ${host(issuer)} answered, so its answer was not used. Sign in again.`);
  }
  if (query.has("error")) {
    throw new Error(`${host(issuer)} did not sign you in: ${query.get("error_description") || query.get("error")}`);
  }
  const answer = await post("v1/sign-in", { issuer, client_id, code: query.get("code"), verifier, redirect_uri });
  if (claims(answer.token)?.nonce !== pending.nonce) {
    throw new Error(`The token of ${host(issuer)} was made for another sign-in, so it was not used. Sign in again.`);
  }
  return answer.token;
}

/** Forgets the token and shows the sign-in, which says why: the user's own wish, or the service's refusal. */
export function leave({ wished = false } = {}) {
  const text = token.get();
  const end = endOf(text);
  const issuer = claims(text)?.iss;
  let why = "The service does not take your token any more: it has expired or was revoked. Sign in with another.";
  if (wished) why = issuer ? `You are signed out of this page. ${host(issuer)} may still know you: sign out there too if others use this computer.` : "You are signed out.";
  else if (end <= Date.now()) why = `Your sign-in ended at ${clock(end)}. Sign in again to go on where you were.`;
  else if (issuer) why = "The service does not take your sign-in any more. Sign in again, or ask an administrator.";
  if (text) sessionStorage.setItem(ENDED, JSON.stringify({ why, wished }));
  token.clear();
  location.reload();
}

export const forgetEnd = () => sessionStorage.removeItem(ENDED);

/** Why the last sign-in ended: `{why, wished}`, or null. */
export const ended = () => JSON.parse(sessionStorage.getItem(ENDED) || "null");
