import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import * as z from 'zod'
import type { PolicyExchange, PolicyRequest } from '../exchange/policy-exchange.ts'
import { plainHost } from '../exchange/request-path.ts'
import { EvaluationError } from '../expression/expression-problem.ts'

const ALGORITHM = 'aes-256-gcm'
const IV_BYTES = 12
const TAG_BYTES = 16

/**
 * Seals data that clients store. Clients can neither read nor change it, nor use it for another purpose. The
 * key has 32 bytes.
 */
export class Sealer {
  readonly #key: Buffer

  constructor(key: Buffer) {
    this.#key = key
  }

  /** Base64url of initialization vector, ciphertext and tag (AES-256-GCM). */
  seal(text: string, purpose: string): string {
    const iv = randomBytes(IV_BYTES)
    const cipher = createCipheriv(ALGORITHM, this.#key, iv).setAAD(Buffer.from(purpose))
    const sealed = [iv, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]
    return Buffer.concat(sealed).toString('base64url')
  }

  /** Undefined unless this key sealed the text for this purpose. */
  open(sealed: string, purpose: string): string | undefined {
    const bytes = Buffer.from(sealed, 'base64url')
    if (bytes.length < IV_BYTES + TAG_BYTES) return undefined
    const tagAt = bytes.length - TAG_BYTES
    const decipher = createDecipheriv(ALGORITHM, this.#key, bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    })
    decipher.setAAD(Buffer.from(purpose)).setAuthTag(bytes.subarray(tagAt))
    try {
      return (
        decipher.update(bytes.subarray(IV_BYTES, tagAt), undefined, 'utf8') + decipher.final('utf8')
      )
    } catch {
      return undefined
    }
  }

  /** A secret that comes out the same each time; base64url of 256 bits. */
  derive(label: string): string {
    return createHmac('sha256', this.#key).update(label).digest('base64url')
  }
}

/** How long a visitor may take to sign in. */
export const FLOW_MS = 10 * 60_000
const PURPOSE = 'state'
/** A longer path is not kept: it travels in the address of the provider. */
const MAX_RETURN = 1_024
const NONCE = /^[\w-]{43}$/

const Flow = z.strictObject({
  browser: z.string(),
  salt: z.string(),
  returnTo: z.string(),
  startedAt: z.number(),
})

/** A sign-in that is under way. All of it travels with the visitor; the gateway keeps nothing. */
export type LoginFlow = z.infer<typeof Flow>

/** Proves to the provider and to the gateway that the returning visitor is the visitor that left. */
interface FlowProof {
  readonly nonce: string
  readonly verifier: string
}

/** The cookie of the visitor's browser, or a new value. Tabs of a browser share it. */
export function browserNonce(cookie: string | undefined): string {
  return cookie !== undefined && NONCE.test(cookie) ? cookie : randomBytes(32).toString('base64url')
}

/** Begins a flow for the browser with this cookie. */
export function beginFlow(nonce: string, returnTo: string, now: number): LoginFlow {
  return {
    browser: digest(nonce).toString('base64url'),
    salt: randomBytes(16).toString('base64url'),
    returnTo: returnTo.length > MAX_RETURN ? '/' : returnTo,
    startedAt: now,
  }
}

export function sealFlow(flow: LoginFlow, sealer: Sealer): string {
  return sealer.seal(JSON.stringify(flow), PURPOSE)
}

/** Undefined unless this sealer sealed it. */
export function openFlow(sealed: string, sealer: Sealer): LoginFlow | undefined {
  const text = sealer.open(sealed, PURPOSE)
  return text === undefined ? undefined : Flow.safeParse(JSON.parse(text)).data
}

/** Whether the flow was begun by the browser with this cookie. */
export function isOfBrowser({ browser }: LoginFlow, nonce: string | undefined): nonce is string {
  const expected = Buffer.from(browser, 'base64url')
  return nonce !== undefined && timingSafeEqual(digest(nonce), expected)
}

/** Computing it needs both the cookie and the sealer. */
export function proofOf({ salt }: LoginFlow, nonce: string, sealer: Sealer): FlowProof {
  const from = (label: string) => sealer.derive(JSON.stringify([label, nonce, salt]))
  return { nonce: from('nonce'), verifier: from('verifier') }
}

const digest = (text: string) => createHash('sha256').update(text).digest()

const OWN = '/ngrok/'

/** Paths of every endpoint with a log-in that its service never sees. */
export const PATHS = {
  login: `${OWN}login`,
  logout: `${OWN}logout`,
  callback: `${OWN}callback`,
} as const

type OwnPath = keyof typeof PATHS

/** The endpoint as its visitor knows it. */
interface LoginSite {
  /** With the port: `https://cam.example:8443`. */
  readonly origin: string
  /** Cookies do not know ports: `https://cam.example`. */
  readonly site: string
  readonly isSecure: boolean
}

/** Throws EvaluationError for a host that cannot stand in a URL. */
export function siteOf({ scheme, host, headers }: PolicyRequest): LoginSite {
  const field = headers.get('host') ?? ''
  // Rules may have changed the host for the device.
  const authority = plainHost(field) === host ? field : host
  const text = `${scheme}://${authority}`
  if (!URL.canParse(text)) throw new EvaluationError('the host is not valid in a URL')
  const { origin, hostname } = new URL(text)
  return { origin, site: `${scheme}://${hostname}`, isSecure: scheme === 'https' }
}

/**
 * The own path that a request addresses. Several sign-ins of a policy are told apart by their `auth_id`, and
 * on return by their tag in the state.
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

/** Path and query on this origin; `/` for targets on other origins, or in a circle. */
export function localPath(text: string, origin: string): string {
  if (!text.startsWith('/') || !URL.canParse(text, origin)) return '/'
  const url = new URL(text, origin)
  const isOwn = Object.values<string>(PATHS).includes(url.pathname)
  return url.origin === origin && !isOwn ? `${url.pathname}${url.search}` : '/'
}
