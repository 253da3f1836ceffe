import type { PolicyRequest } from './policy-exchange.ts'

/** The URL of a request in its parts, as expressions see them. Nothing is normalized away. */
export interface RequestUrl {
  readonly text: string
  /** Host and port as in the Host field. */
  readonly authority: string
  readonly rawPath: string
  /** Without the question mark. */
  readonly query: string
}

export function requestUrl(request: PolicyRequest): RequestUrl {
  const { target, scheme } = request
  const authority = request.headers.get('host') ?? request.host
  const mark = target.indexOf('?')
  const rawPath = mark === -1 ? target : target.slice(0, mark)
  return {
    text: `${scheme}://${authority}${target}`,
    authority,
    rawPath,
    query: mark === -1 ? '' : target.slice(mark + 1),
  }
}

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

/** Percent-decoded; as it came when it cannot be decoded. */
export function decodePath(text: string): string {
  if (!text.includes('%')) return text
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
