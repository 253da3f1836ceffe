import { isIP } from 'node:net'
import { connect } from 'node:tls'
import { CLOCK_REMEDY } from '../../agent/probes/connection-problem.ts'
import { systemClock } from '../../base/clock.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { isLoopback, type ListenAddress } from '../../base/listen-address.ts'
import { isThisMachine } from '../../base/net/public-names.ts'
import type { SeenAgent } from './agent-checks.ts'
import { bad, type Finding, good } from './finding.ts'

const DAY_MS = 86_400_000
/** A certificate that is renewed automatically has more time left. */
const WARN_BEFORE_MS = 14 * DAY_MS
/** Short-lived certificates are renewed in the second half of their life. */
const LEAST_SHARE_LEFT = 0.5
const HANDSHAKE_MS = 3_000
const MAX_HOSTS = 20
const REMEDY =
  'The owner of the gateway must renew it: replace the files of GATEWAY_TLS_CERT, or see the certificate of the domain in the console.'

interface SeenCertificate {
  readonly host: string
  readonly fingerprint: string
  readonly startsAt: number
  readonly endsAt: number
}

/**
 * One finding for each certificate that visitors of this device get. Hosts without an answer are left out,
 * because other checks report them. `skewMs`: clock of the device minus clock of the gateway.
 */
export async function certificateChecks(
  { status, tunnels }: SeenAgent,
  ingress: ListenAddress | undefined,
  stop: AbortSignal,
  skewMs = 0,
): Promise<Finding[]> {
  const online = tunnels.filter(({ state, protocol }) => state === 'online' && protocol === 'http')
  const own = status.own_endpoint
  const urls = [...(own ? [own.url] : []), ...online.map(({ url }) => url)]
  const hosts = new Map(
    urls
      .filter((url) => url.startsWith('https:'))
      .map((text) => [new URL(text).host, new URL(text)] as const),
  )
  const asked = [...hosts.values()].slice(0, MAX_HOSTS)
  const seen = await Promise.all(asked.map((url) => certificateOf(url, ingress, stop)))
  const certificates = new Map(seen.flatMap((it) => (it ? [[it.fingerprint, it] as const] : [])))
  return [...certificates.values()].map((it) => judge(it, skewMs))
}

function judge({ host, startsAt, endsAt }: SeenCertificate, skewMs: number): Finding {
  const check = `certificate ${host}`
  const date = new Date(endsAt).toISOString().slice(0, 10)
  const warnMs = Math.min(WARN_BEFORE_MS, (endsAt - startsAt) * LEAST_SHARE_LEFT)
  const flawAt = (now: number) => {
    if (endsAt - now >= warnMs) return undefined
    return endsAt < now ? `has expired on ${date}` : `expires on ${date}`
  }
  const now = systemClock.now()
  const [ours, theirs] = [flawAt(now), flawAt(now - skewMs)]
  if (ours === undefined && theirs === undefined) return good(check, `valid until ${date}`)
  if (ours !== undefined && theirs !== undefined) return bad(check, ours, REMEDY)
  const where = ours === undefined ? 'the gateway' : 'this device'
  return bad(check, `${ours ?? theirs} by the clock of ${where} alone`, CLOCK_REMEDY)
}

/** A handshake without a request, so that no service counts it as a visit. */
function certificateOf(
  { host, hostname, port }: URL,
  ingress: ListenAddress | undefined,
  stop: AbortSignal,
): Promise<SeenCertificate | undefined> {
  const name = hostname.replace(/^\[|\]$/g, '')
  // Names below localhost are this machine, but not every resolver supports this.
  const found = isThisMachine(name) && !isLoopback(name) ? '127.0.0.1' : name
  const where = ingress ?? { host: found, port: Number(port || 443) }
  return abortedAfter(HANDSHAKE_MS, stop, (signal) => {
    return new Promise((resolve) => {
      const servername = isIP(name) ? '' : name
      const socket = connect({ ...where, servername, rejectUnauthorized: false })
      signal.addEventListener('abort', () => socket.destroy(), { once: true })
      socket.once('error', () => {})
      socket.once('close', () => resolve(undefined))
      socket.once('secureConnect', () => {
        const certificate = socket.getPeerX509Certificate()
        resolve(
          certificate && {
            host,
            fingerprint: certificate.fingerprint256,
            startsAt: Date.parse(certificate.validFrom),
            endsAt: Date.parse(certificate.validTo),
          },
        )
        socket.destroy()
      })
    })
  })
}
