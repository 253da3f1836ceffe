/**
 * Where a string of CEL ends whose first quote stands at `open`: the place of its last quote, -1
 * when it is not closed. Single or triple quotes; backslashes escape unless the string is raw.
 */
export function closingQuote(text: string, open: number): number {
  const char = text.charAt(open)
  const quote = text.startsWith(char.repeat(3), open) ? char.repeat(3) : char
  const isRaw = /(?:^|[^\w])[bB]?[rR][bB]?$/.test(text.slice(Math.max(0, open - 3), open))
  for (let at = open + quote.length; at < text.length; at += 1) {
    if (text.charAt(at) === '\\' && !isRaw) at += 1
    else if (text.startsWith(quote, at)) return at + quote.length - 1
  }
  return -1
}
