/** Of a key in JSON text, and of everything else between commas or in brackets. */
const KEY_STEPS = 6
const VALUE_STEPS = 1

/**
 * What it takes to read JSON text, beside going through its characters. Objects and their keys are what
 * takes long, and most of all keys that were never seen before.
 */
export function jsonSteps(text: string): number {
  let keys = 0
  let values = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === COLON) keys += 1
    else if (code === COMMA || code === BRACKET || code === BRACE) values += 1
  }
  return KEY_STEPS * keys + VALUE_STEPS * values
}

const [COLON, COMMA, BRACKET, BRACE] = [0x3a, 0x2c, 0x5b, 0x7b]
