// The bytes of tokens, of a tokenizer.json whose tokens are sequences of bytes (GPT-2's, and most since).

/** Each token's bytes, by its number. */
export function vocabularyOf({ model: { vocab }, added_tokens: added = [] }) {
  const characters = bytesByCharacter(), encoder = new TextEncoder();
  const found = new Map(Object.entries(vocab).map(([text, token]) => [token, Uint8Array.from(text, (one) => characters.get(one))]));
  for (const { id, content } of added) found.set(id, encoder.encode(content));
  return found;
}

/** The file writes a byte as a character that can be seen: as itself, or as one of those from 256 on. */
function bytesByCharacter() {
  const seen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  const found = new Map();
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) found.set(String.fromCharCode(seen(byte) ? byte : next++), byte);
  return found;
}
