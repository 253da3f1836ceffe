import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import * as z from 'zod'
import type { Sealer } from './sealer.ts'

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

/** What proves to the provider, and to us, that the visitor who comes back is the one that left. */
export interface FlowProof {
  readonly nonce: string
  readonly verifier: string
}

/** The cookie that the browser of the visitor has, or a new one: tabs side by side share it. */
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

/** Undefined for what this sealer has not sealed. */
export function openFlow(sealed: string, sealer: Sealer): LoginFlow | undefined {
  const text = sealer.open(sealed, PURPOSE)
  return text === undefined ? undefined : Flow.safeParse(JSON.parse(text)).data
}

/** Whether the flow was begun by the browser with this cookie. */
export function isOfBrowser({ browser }: LoginFlow, nonce: string | undefined): nonce is string {
  const expected = Buffer.from(browser, 'base64url')
  return nonce !== undefined && timingSafeEqual(digest(nonce), expected)
}

/** Nobody can compute it but who has both the cookie and the sealer. */
export function proofOf({ salt }: LoginFlow, nonce: string, sealer: Sealer): FlowProof {
  const from = (label: string) => sealer.derive(JSON.stringify([label, nonce, salt]))
  return { nonce: from('nonce'), verifier: from('verifier') }
}

const digest = (text: string) => createHash('sha256').update(text).digest()
