/** Which page the address names: `#/jobs/ID` and the like, and /docs. */
import { useEffect, useState } from "./lib.js";

const PATTERNS = [
  [/^\/?$/, "jobs"],
  [/^\/jobs\/([^/]+)$/, "job"],
  [/^\/compile$/, "compile"],
  [/^\/builds\/([^/]+)$/, "build"],
  [/^\/diff(?:\/([^/]+)\/([^/]+))?$/, "diff"],
  [/^\/targets$/, "targets"],
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

export const go = (address) => {
  location.hash = address;
};
