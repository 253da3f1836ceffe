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
