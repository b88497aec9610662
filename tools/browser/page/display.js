// What the pages share: facts about the bundle, and how far it has come.
export const at = (id) => document.getElementById(id);
export const made = (kind, text, className = '') => Object.assign(document.createElement(kind), { textContent: text, className });

export const progress = ({ done, total }) => {
  at('progress').value = done / total;
};

/** `doing` is the word that stands for the verdict until there is one. */
export const facts = (doing) => ({ facts }) => {
  for (const [name, text] of Object.entries(facts)) at('facts').append(made('dt', name), made('dd', text));
  at('verdict').textContent = doing;
};
