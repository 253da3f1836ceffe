import { formatUtc } from '../../base/clock.ts'
import type { Problem, Reason } from '../problem.ts'
import { HOSTED_SERVICE } from './service-time.ts'

const DNS_CODES = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'EAI_FAIL',
  'EAI_NONAME',
  'ENODATA',
  'ESERVFAIL',
])
const UNKNOWN_CA_CODES = new Set([
  // Another CA with the same name, for example after a gateway was installed again.
  'CERT_SIGNATURE_FAILURE',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
])
const TLS_CODE = /^(ERR_TLS_|ERR_SSL_|CERT_|EPROTO$)/

/** The agent reads its settings at its start. */
const RESTART = 'After a correction, restart the agent.'

const REMEDIES = {
  dns: 'Check the host name and the DNS server of the device.',
  tls: `Check the address in SVC_SERVER_ADDR. ${RESTART} A proxy or a firewall may also interfere with TLS.`,
  network: `Check that the gateway runs, its address in SVC_SERVER_ADDR, and the network of the device. ${RESTART}`,
} as const satisfies Partial<Record<Reason, string>>

export const CLOCK_REMEDY =
  "Set the wrong clock, of this device or of the gateway. On Linux, run sudo timedatectl set-ntp true there. Without a time server, run sudo timedatectl set-ntp false, then sudo timedatectl set-time 'YYYY-MM-DD HH:MM:SS UTC' with the right time."

/** A wrong clock causes these too. */
const DATE_CODES: ReadonlySet<string> = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'])

/** Whether the certificate was rejected because it has expired. */
export function isExpiry(error: unknown): boolean {
  return codeOf(error) === 'CERT_HAS_EXPIRED'
}

/** Whether the certificate was rejected because of its dates. */
export function isDateError(error: unknown): boolean {
  return DATE_CODES.has(codeOf(error))
}

/**
 * Problem of a certificate at `where` that is valid by the clock of the service, but not by that of this
 * device.
 */
export function clockProblem(where: string, ours: number, theirs: number): Problem {
  const [device, service] = [ours, theirs].map(formatUtc)
  return {
    reason: 'clock',
    detail: `the clocks of this device and the gateway disagree: ${device} here, ${service} there. The certificate of ${where} cannot be checked`,
    remedy: CLOCK_REMEDY,
    permanent: false,
  }
}

/** Visitors get an expired certificate. `isSure`: the clock of this device agrees with the service. */
export function expiredProblem(
  where: string,
  endedAt: number | undefined,
  isSure: boolean,
): Problem {
  const when = endedAt === undefined ? '' : `, on ${new Date(endedAt).toISOString().slice(0, 10)}`
  const renew =
    'Renew the certificate at the gateway (GATEWAY_TLS_CERT). Visitors get an error until then.'
  return {
    reason: 'tls',
    detail: `the gateway's certificate has expired: ${where}${when}`,
    remedy: isSure ? renew : `Check the clock of the device. If the clock is right: ${renew}`,
    permanent: false,
  }
}

const PORT = `Check the port in SVC_SERVER_ADDR: that of GATEWAY_AGENT_LISTEN of the gateway, by default 4443. ${RESTART}`
const INTERCEPTED = 'A proxy or a login page of the network may also intercept TLS.'

/** `path`: the file of SVC_CA_CERT. The agent reads it at its start. */
function caRemedy(path: string | undefined): string {
  const print = 'On the gateway, run device-agent gateway show ca.'
  const save =
    path === undefined
      ? 'Save its output on this device, set SVC_CA_CERT to the file, and restart the agent.'
      : `Save its output to ${path} (SVC_CA_CERT), and restart the agent.`
  return `${print} ${save} ${INTERCEPTED}`
}

/** Remedies for the hosted service, whose address is no setting. */
const HOSTED_REMEDIES = {
  dns: 'Check that the device has a network, and that its DNS server answers.',
  tls: 'A proxy or a login page of the network intercepts the connection. Sign in there, or use another network.',
  network: `Check the network of the device. Firewalls must allow TCP to ${HOSTED_SERVICE}: the agent uses no HTTP proxy.`,
} as const
const NO_TLS = `${PORT} A login page or an HTTP proxy may also answer.`
const NO_ROUTE = `Check the cable or Wi-Fi of the device, its default route (ip route), and the address in SVC_SERVER_ADDR. ${RESTART}`
const FIREWALL = `Check the network of the device, and the address in SVC_SERVER_ADDR. ${RESTART} Firewalls must allow TCP to this address: the agent uses no HTTP proxy.`
const SILENT = `${PORT} A firewall may hold the connection, or the gateway hangs.`
/** More precise remedies than those of the reason. */
const CODE_REMEDIES: Readonly<Record<string, string>> = {
  ENOTFOUND:
    'Correct the host name in SVC_SERVER_ADDR and restart the agent. Or add the name to the DNS server of the device.',
  EAI_AGAIN: 'Check that the device has a network, and that its DNS server answers.',
  ECONNREFUSED: `Check that the gateway runs, and its address and port in SVC_SERVER_ADDR. The port is that of GATEWAY_AGENT_LISTEN, by default 4443. ${RESTART}`,
  ECONNRESET:
    'Check the log of the gateway: it may be stopping, or at its limit of connections. A firewall may also close the connection.',
  EHOSTUNREACH: NO_ROUTE,
  ENETUNREACH: NO_ROUTE,
  ETIMEDOUT: FIREWALL,
  ERR_TLS_CERT_ALTNAME_INVALID:
    'Set SVC_SERVER_ADDR to a name of the certificate, and restart the agent. Check that the address leads to your gateway.',
}
/** The answer to a TLS handshake is no TLS, for example HTTP. */
const NO_TLS_CODES: ReadonlySet<string> = new Set([
  'EPROTO',
  'ERR_SSL_HTTP_REQUEST',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
  'ERR_SSL_UNEXPECTED_MESSAGE',
  'ERR_SSL_WRONG_VERSION_NUMBER',
])

const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refuses connections',
  ECONNRESET: 'closed the connection',
  EHOSTUNREACH: 'is unreachable',
  ENETUNREACH: 'is unreachable: the device has no route',
  ETIMEDOUT: 'does not answer',
  ERR_TLS_CERT_ALTNAME_INVALID: 'has a certificate for another name',
}

/** More names say no more to a person, and a server may send many. */
const MAX_NAMES = 12
const MAX_CHARACTERS = 64

/**
 * Problem of a gateway whose certificate is for other names than `host`. `names`: the alternative names as
 * Node prints them. Untrusted text.
 */
export function nameProblem(where: string, host: string, names: string): Problem {
  const listed = names
    .split(', ')
    .map((entry) => entry.slice(entry.indexOf(':') + 1))
    .map((name) => name.replace(/[^\w.:*-]/g, '?').slice(0, MAX_CHARACTERS))
    .filter((name) => name !== '')
  const shown = listed.length > MAX_NAMES ? [...listed.slice(0, MAX_NAMES), '…'] : listed
  return {
    reason: 'tls',
    detail: `${where} presented a certificate for other names: ${shown.join(', ') || 'none'}`,
    remedy: `Add ${host} to GATEWAY_PUBLIC_NAMES of the gateway, or set SVC_SERVER_ADDR to one of these names and restart the agent.`,
    permanent: false,
  }
}

/**
 * Explains why `where` could not be reached, from the error of a lookup, a socket or a handshake.
 * `caCertPath`: the file of the CA that the certificate was checked against.
 */
export function connectionProblem(where: string, error: unknown, caCertPath?: string): Problem {
  const code = codeOf(error)
  const reason = reasonOf(code)
  return {
    reason,
    detail: `${where} ${sentenceOf(reason, code)}`,
    remedy: isHosted(where) ? HOSTED_REMEDIES[reason] : remedyFor(reason, code, caCertPath),
    permanent: false,
  }
}

/** Problem of a server that did not answer. `isAccepted`: it accepts connections, as captive portals do. */
export function silenceProblem(where: string, ms: number, isAccepted = false): Problem {
  const detail = `${where} did not answer within ${Math.ceil(ms / 1_000)} s`
  return {
    reason: 'network',
    detail: isAccepted ? `${detail} (it accepts connections)` : detail,
    remedy: isHosted(where) ? HOSTED_REMEDIES.network : isAccepted ? SILENT : FIREWALL,
    permanent: false,
  }
}

/**
 * Problem of a server with a valid certificate that does not answer like a service for agents. A gateway that
 * stops while an agent connects looks the same.
 */
export function foreignProblem(where: string): Problem {
  return {
    reason: 'network',
    detail: `${where} does not answer like a gateway`,
    remedy: `${PORT} If it is right, wait: the agent retries automatically.`,
    permanent: false,
  }
}

/** Our gateway renews the certificate for agents itself. */
export const RENEW_REMEDY =
  'Check the clocks of the device and the gateway. If both are right, restart the gateway to renew the certificate.'

/** Problem of a certificate that Node accepts and the SDK does not, because it trusts another CA. */
export function untrustedProblem(cause: string): Problem {
  const detail = `the gateway has a certificate of an unknown CA (${cause})`
  return { reason: 'tls', detail, remedy: caRemedy(undefined), permanent: false }
}

/** `where` is the host of a lookup, or host and port. */
function isHosted(where: string): boolean {
  return where === HOSTED_SERVICE || HOSTED_SERVICE.startsWith(`${where}:`)
}

function remedyFor(
  reason: keyof typeof REMEDIES,
  code: string,
  caCertPath: string | undefined,
): string {
  if (UNKNOWN_CA_CODES.has(code)) return caRemedy(caCertPath)
  if (NO_TLS_CODES.has(code)) return NO_TLS
  return CODE_REMEDIES[code] ?? REMEDIES[reason]
}

function reasonOf(code: string): keyof typeof REMEDIES {
  if (DNS_CODES.has(code)) return 'dns'
  return TLS_CODE.test(code) || UNKNOWN_CA_CODES.has(code) ? 'tls' : 'network'
}

function sentenceOf(reason: Reason, code: string): string {
  if (code === 'EAI_AGAIN') return `cannot be resolved: DNS does not answer (${code})`
  if (reason === 'dns') return `cannot be resolved by DNS (${code})`
  if (UNKNOWN_CA_CODES.has(code)) return `has a certificate of an unknown CA (${code})`
  if (NO_TLS_CODES.has(code)) return 'does not speak TLS'
  return SENTENCES[code] ?? `failed (${code})`
}

/**
 * Returns the code of an error. Connecting to several addresses fails with one error per address. The last
 * one is the most useful.
 */
function codeOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return codeOf(error.errors.at(-1))
  if (!(error instanceof Error)) return 'unknown error'
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message
}
