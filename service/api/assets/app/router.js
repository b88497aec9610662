/** Which page the address names: `#/jobs/ID` and the like, and /docs. */
import { useEffect, useState } from "./lib.js";

const PATTERNS = [
  [/^\/?$/, "jobs"],
  [/^\/jobs\/([^/]+)$/, "job"],
  [/^\/compile$/, "compile"],
  [/^\/builds\/([^/]+)$/, "build"],
  [/^\/diff(?:\/([^/]+)\/([^/]+))?$/, "diff"],
  [/^\/targets$/, "targets"],
  [/^\/admin(?:\/([a-z]+))?$/, "admin"],
  [/^\/models$/, "models"],
  [/^\/models\/([^/]+)$/, "model"],
];

export function parse(place) {
  if (/\/docs$/.test(place.pathname)) return { page: "reference", arguments: [], query: new URLSearchParams() };
  const [path, query = ""] = place.hash.replace(/^#/, "").split("?");
  for (const [pattern, page] of PATTERNS) {
    const found = pattern.exec(path);
    if (found) {
      const values = found.slice(1).filter((value) => value !== undefined);
      return { page, arguments: values.map(decodeURIComponent), query: new URLSearchParams(query) };
    }
  }
  return { page: "jobs", arguments: [], query: new URLSearchParams() };
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location));
  useEffect(() => {
    const changed = () => setRoute(parse(location));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** The query of the address as state: what is set stands in the address, which can be sent and gone back to.
 * A member that is as in `defaults` is left out. */
export function useQuery(route, defaults) {
  const current = Object.fromEntries(Object.entries(defaults).map(([name, value]) => [name, route.query.get(name) ?? value]));
  const set = (changes) => {
    // Read anew: another field may have changed since this page was drawn.
    const [path, before = ""] = location.hash.split("?");
    const query = new URLSearchParams(before);
    for (const [name, value] of Object.entries(changes)) {
      if (value === defaults[name]) query.delete(name);
      else query.set(name, value);
    }
    history.replaceState(null, "", `${location.pathname}${path || "#/"}${query.size ? `?${query}` : ""}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  return [current, set];
}

export const go = (address) => {
  location.hash = address;
};
