/** The media type in a Content-Type field, as RFC 9110 8.3.1 has it. */
export function mediaType(raw: string): string {
  const end = raw.indexOf(';')
  return (end === -1 ? raw : raw.slice(0, end)).trim().toLowerCase()
}

/** The parameters of the same. */
export function mediaParameters(raw: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>()
  for (const part of raw.split(';').slice(1)) {
    const mark = part.indexOf('=')
    if (mark === -1) continue
    const value = part.slice(mark + 1).trim()
    parameters.set(part.slice(0, mark).trim().toLowerCase(), value.replace(/^"(.*)"$/, '$1'))
  }
  return parameters
}
