import { plainHost } from '../exchange/host-name.ts'
import type { PolicyExchange, PolicyRequest } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'

const OWN = '/ngrok/'

/** Paths of every endpoint with a log-in that its service never sees. */
export const PATHS = {
  login: `${OWN}login`,
  logout: `${OWN}logout`,
  callback: `${OWN}callback`,
} as const

export type OwnPath = keyof typeof PATHS

/** The endpoint as its visitor knows it. */
export interface LoginSite {
  /** With the port: `https://cam.example:8443`. */
  readonly origin: string
  /** Cookies do not know ports: `https://cam.example`. */
  readonly site: string
  readonly isSecure: boolean
}

/** Throws EvaluationError for a host that cannot stand in a URL. */
export function siteOf({ scheme, host, headers }: PolicyRequest): LoginSite {
  const field = headers.get('host') ?? ''
  // Rules may have given the device another one.
  const authority = plainHost(field) === host ? field : host
  const text = `${scheme}://${authority}`
  if (!URL.canParse(text)) throw new EvaluationError('the host is not valid in a URL')
  const { origin, hostname } = new URL(text)
  return { origin, site: `${scheme}://${hostname}`, isSecure: scheme === 'https' }
}

/**
 * Which of its own paths a request asks for. Several log-ins of a policy are told apart by their
 * `auth_id`, and on the way back by their tag in the state.
 */
export function ownPath(
  { request, parsed, account }: PolicyExchange,
  authId: string,
  tag: string,
): OwnPath | undefined {
  if (!request?.clientTarget.startsWith(OWN)) return undefined
  const { clientTarget: target, method } = request
  const [path] = target.split('?', 1)
  const query = parsed.query(target, account)
  const isRead = method === 'GET' || method === 'HEAD'
  const isAsked = (query.get('auth_id')?.[0] ?? '') === authId
  if (path === PATHS.login && isRead && isAsked) return 'login'
  if (path === PATHS.logout && isRead && isAsked) return 'logout'
  const isOurs = query.get('state')?.[0]?.startsWith(`${tag}.`) === true
  // A HEAD would use the code up.
  return path === PATHS.callback && method === 'GET' && isOurs ? 'callback' : undefined
}

/** Path and query on this very origin; `/` for whatever leads elsewhere, or into a circle. */
export function localPath(text: string, origin: string): string {
  if (!text.startsWith('/') || !URL.canParse(text, origin)) return '/'
  const url = new URL(text, origin)
  const isOwn = Object.values<string>(PATHS).includes(url.pathname)
  return url.origin === origin && !isOwn ? `${url.pathname}${url.search}` : '/'
}
