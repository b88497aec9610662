/** The build that others are compared with, kept in this tab. */
const KEY = "relaxd.base";

export const base = {
  /** Its digest and name, or nothing. */
  get: () => JSON.parse(sessionStorage.getItem(KEY) || "[]"),
};

export const setBase = (digest, name) => sessionStorage.setItem(KEY, JSON.stringify([digest, name]));

export const compareLink = (digest) => `./#/diff/${base.get()[0]}/${digest}`;
