import { X509Certificate } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { connect } from 'node:tls'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { exchange, request } from '../../base/net/node-http.ts'
import { Secret } from '../../base/secret.ts'
import type { Config } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'
import { agentReach, localAddress } from '../local-address.ts'
import { ManagementClient } from '../provision/management-client.ts'

/** The API allows 120 requests a minute. */
const POLL_MS = 1_000
const ANSWER_MS = 3_000
const MAX_BYTES = 65_536

const Node = z.object({
  id: z.string(),
  started_at: z.iso.datetime(),
  is_self: z.boolean(),
  agent_addresses: z.array(z.string()),
})
const Job = z.object({
  error_code: z.string().nullable(),
  msg: z.string(),
  started_at: z.string(),
  retries_at: z.string().nullable(),
})
const Domain = z.object({
  id: z.string(),
  domain: z.string(),
  acme_challenge_cname_target: z.string(),
  certificate_management_policy: z.object({
    authority: z.string(),
    challenge: z.string().optional(),
  }),
  certificate_management_status: z.object({
    renews_at: z.string().nullable(),
    provisioning_job: Job.nullable(),
  }),
})
const Checked = z.object({
  ok: z.boolean(),
  records: z.array(
    z.object({
      ...{ type: z.string(), name: z.string(), expected: z.string(), ok: z.boolean() },
      ...{ found: z.array(z.string()), error: z.string().nullable() },
    }),
  ),
})

/** How the authority checks a domain. */
export type Challenge = 'dns-01' | 'on-demand'

export type GatewayDomain = z.infer<typeof Domain>

export interface Reserved {
  readonly domain: GatewayDomain
  /** It was reserved just now. */
  readonly isNew: boolean
}

/** Why the gateway does not serve yet, for people. */
export interface NotReady {
  readonly reason: string
  /** It was started before the last change of its files. */
  readonly isOutdated?: true
}

/** `ordered`: not issued yet. */
export type CertificateResult =
  | { readonly state: 'issued' | 'ordered' }
  | { readonly state: 'failed'; readonly reason: string }

export interface VisitorCertificate {
  readonly issuer: string
  /** Date of its end. */
  readonly endsAt: string
  /** Whether the gateway's own CA has issued it. */
  readonly isOwnCa: boolean
}

export interface RunningGatewayOptions {
  readonly config: Config['gateway']
  readonly clock: Clock
  readonly stop: AbortSignal
  /** Files that the gateway reads only at its start. */
  readonly files: readonly string[]
}

/** The gateway of this machine, through its management API. */
export class RunningGateway {
  readonly #options: RunningGatewayOptions

  constructor(options: RunningGatewayOptions) {
    this.#options = options
  }

  /** Waits until the gateway serves with these settings. Returns the reason if it does not in time. */
  async ready(withinMs: number): Promise<NotReady | undefined> {
    const { clock, stop } = this.#options
    const until = clock.monotonic() + withinMs
    for (;;) {
      const notReady = await this.#notReady()
      if (!notReady || clock.monotonic() >= until) return notReady
      await clock.sleep(POLL_MS, stop).catch(stopped)
    }
  }

  /** Whether it runs with other settings than those of its files; false without an answer. */
  async hasOldSettings(): Promise<boolean> {
    return (await this.#notReady())?.isOutdated === true
  }

  async #notReady(): Promise<NotReady | undefined> {
    const { config } = this.#options
    const address = localAddress(config.apiListen)
    try {
      const sent = request(`http://${address}/readyz`, { timeout: ANSWER_MS })
      sent.on('timeout', () => sent.destroy(new Error('no answer')))
      const { response, text } = await exchange(sent, undefined, MAX_BYTES)
      // First: old settings can be the reason why it is not ready.
      const nodes = await this.#client().list('nodes', Node)
      const self = nodes.find((node) => node.is_self)
      const [wanted = ''] = agentReach(config.agentListen, config.publicNames).addresses
      if (self && !(self.agent_addresses.includes(wanted) && this.#isNewerThanFiles(self))) {
        return { reason: 'it still has its earlier settings', isOutdated: true }
      }
      return response.statusCode === 200 ? undefined : { reason: `it answers ${text}` }
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      return { reason: `no answer at ${address} (${code ?? message})` }
    }
  }

  /** The API tells whole seconds. A time in the future is of a clock that was wrong. */
  #isNewerThanFiles({ started_at }: z.infer<typeof Node>): boolean {
    const { files, clock } = this.#options
    const changed = files
      .map((path) => statSync(path, { throwIfNoEntry: false })?.ctimeMs ?? 0)
      .filter((ms) => ms <= clock.now())
    return Math.floor(Math.max(0, ...changed) / 1_000) * 1_000 <= Date.parse(started_at)
  }

  #client(): ManagementClient {
    const { config, clock, stop } = this.#options
    const baseUrl = new URL(`http://${localAddress(config.apiListen)}`)
    const apiKey = new Secret(readFileSync(apiKeyPath(config), 'utf8').trim())
    return new ManagementClient({ baseUrl, apiKey, clock, stop })
  }

  /** The domain, reserved if it was not. */
  async domain(name: string): Promise<Reserved> {
    const client = this.#client()
    const known = (await client.list('reserved_domains', Domain)).find((it) => it.domain === name)
    if (known) return { domain: known, isNew: false }
    const domain = await client.create('reserved_domains', { domain: name }, Domain)
    return { domain, isNew: true }
  }

  /** Lets the ACME authority issue the certificates of a domain. */
  usePublicAuthority({ id }: GatewayDomain, challenge: Challenge): Promise<GatewayDomain> {
    const policy = { certificate_management_policy: { authority: 'letsencrypt', challenge } }
    return this.#client().update(`reserved_domains/${id}`, policy, Domain)
  }

  /**
   * Waits until visitors get a certificate of the authority, or the order fails. Failed orders are tried again
   * first.
   */
  async certificate(name: string, withinMs: number): Promise<CertificateResult> {
    const { clock, stop } = this.#options
    const until = clock.monotonic() + withinMs
    /** The failure before the retry. */
    let earlier: z.infer<typeof Job> | undefined
    for (;;) {
      const { domain } = await this.domain(name)
      const job = domain.certificate_management_status.provisioning_job
      const seen = await this.visitorCertificate(name)
      if (seen && !seen.isOwnCa) return { state: 'issued' }
      const failed = job && job.error_code !== null ? job : undefined
      if (failed && earlier && isOther(failed, earlier))
        return { state: 'failed', reason: failed.msg }
      if (clock.monotonic() >= until) {
        return failed ? { state: 'failed', reason: failed.msg } : { state: 'ordered' }
      }
      if (failed && !earlier) {
        const checked = await this.#client().act(`reserved_domains/${domain.id}/check`, Checked)
        const isByDns = domain.certificate_management_policy.challenge === 'dns-01'
        // The gateway retries only if the records are right.
        if (isByDns && !checked.ok) {
          return { state: 'failed', reason: [failed.msg, ...recordProblems(checked)].join(' ') }
        }
        earlier = failed
      }
      await clock.sleep(POLL_MS, stop).catch(stopped)
    }
  }

  /** Whether this gateway answers at an address that is not of this machine, such as that of a router. */
  async answersAt(address: string, name: string): Promise<boolean> {
    const { config, stop } = this.#options
    const ca = this.#caPem()
    const { port } = config.agentListen
    const work = (signal: AbortSignal) =>
      new Promise<boolean>((resolve) => {
        const socket = connect({ host: address, port, servername: name, ca })
        const end = (isOurs: boolean) => {
          socket.destroy()
          resolve(isOurs)
        }
        signal.addEventListener('abort', () => end(false), { once: true })
        socket.once('secureConnect', () => end(socket.authorized)).once('error', () => end(false))
      })
    return abortedAfter(ANSWER_MS, stop, work)
  }

  /** The certificate that visitors of a name or wildcard get; undefined without an answer. */
  async visitorCertificate(name: string): Promise<VisitorCertificate | undefined> {
    const { config, stop } = this.#options
    const [host, port] = splitAddress(localAddress(config.httpsListen))
    const servername = name.replace(/^\*/, 'www')
    const ca = new X509Certificate(this.#caPem())
    const work = (signal: AbortSignal) =>
      new Promise<VisitorCertificate | undefined>((resolve) => {
        const socket = connect({ host, port, servername, rejectUnauthorized: false })
        signal.addEventListener('abort', () => socket.destroy(), { once: true })
        socket.once('close', () => resolve(undefined)).once('error', () => {})
        socket.once('secureConnect', () => {
          const { issuer, valid_to } = socket.getPeerCertificate()
          resolve({
            issuer: String(issuer?.CN ?? issuer?.O ?? 'unknown'),
            endsAt: new Date(valid_to).toISOString().slice(0, 10),
            isOwnCa: socket.getPeerX509Certificate()?.checkIssued(ca) ?? false,
          })
          socket.destroy()
        })
      })
    return abortedAfter(ANSWER_MS, stop, work)
  }

  #caPem(): Buffer {
    return readFileSync(join(this.#options.config.dataDir, 'ca.pem'))
  }
}

/** Whether a failure is of another attempt. */
function isOther(now: z.infer<typeof Job>, before: z.infer<typeof Job>): boolean {
  return now.started_at !== before.started_at || now.retries_at !== before.retries_at
}

function recordProblems({ records }: z.infer<typeof Checked>): string[] {
  return records
    .filter(({ ok }) => !ok)
    .map(({ type, name, expected, found, error }) => {
      const has = found.length > 0 ? found.join(', ') : `none (${error ?? 'no records'})`
      return `The DNS record ${type} ${name} must be ${expected}, but DNS has ${has}.`
    })
}

function splitAddress(text: string): [string, number] {
  const at = text.lastIndexOf(':')
  return [text.slice(0, at).replace(/^\[|\]$/g, ''), Number(text.slice(at + 1))]
}

function stopped(): never {
  throw new StartError('Stopped before the end. Run this command again to continue.')
}
