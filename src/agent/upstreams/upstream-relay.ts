import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, createServer, isIP, type LookupFunction, type Socket } from 'node:net'
import { abortedAfter } from '../../base/deadline.ts'
import { hostsFileHasLocalhost } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { type ProxyProtocol, proxyHeaderLength } from '../../base/net/proxy-protocol.ts'
import type { ForwardRules } from './forward-rules.ts'
import {
  type Carrier,
  type ForwardTarget,
  formatForwardTarget,
  isSecure,
} from './forward-target.ts'
import { breakOff, connectUpstream, HandshakeError } from './upstream-connection.ts'
import type { TlsMinVersion } from './upstream-options.ts'

const PLAIN_HTTP: WayToUpstream = { carrier: 'http', verifyTls: true, http2: false }

interface Held {
  readonly relay: UpstreamRelay
  holders: number
}

/** Sees to it that what is dialled is what the rules have allowed, for names and paths each time anew. */
export class UpstreamDialer {
  readonly #rules: ForwardRules
  readonly #log: Logger
  /** The SDK finds it by itself, which saves a hop. */
  readonly #systemHasLocalhost: boolean
  readonly #held = new Map<string, Held>()

  constructor(rules: ForwardRules, log: Logger, systemHasLocalhost = hostsFileHasLocalhost()) {
    this.#rules = rules
    this.#log = log
    this.#systemHasLocalhost = systemHasLocalhost
  }

  /** Keeps what a target needs until the returned function is called. */
  hold(target: ForwardTarget, way = PLAIN_HTTP): () => void {
    const lookup = this.lookupFor(target)
    const isPath = 'path' in target
    if (!lookup && !isPath && !isSecure(target)) return () => {}
    const key = keyOf(target, way)
    const check = isPath ? () => this.#rules.check(target) : undefined
    const held = this.#held.get(key) ?? {
      relay: new UpstreamRelay({ ...way, target, lookup, check, log: this.#log }),
      holders: 0,
    }
    held.holders += 1
    this.#held.set(key, held)
    return () => {
      held.holders -= 1
      if (held.holders > 0) return
      this.#held.delete(key)
      held.relay.close()
    }
  }

  /** What the SDK is to dial for a target that is held. */
  async dialUrl(target: ForwardTarget, way = PLAIN_HTTP): Promise<string> {
    const relay = this.#held.get(keyOf(target, way))?.relay
    return (await relay?.dialUrl()) ?? urlOf(target, way.carrier)
  }

  /**
   * For `connect`: the addresses of the target's name that may be dialled, an error when there is
   * none. Undefined for what no name server is asked for: addresses, and localhost where a file has it.
   */
  lookupFor(target: ForwardTarget): LookupFunction | undefined {
    if ('path' in target) return undefined
    const { host } = target
    if (isIP(host) !== 0 || (host === 'localhost' && this.#systemHasLocalhost)) return undefined
    return (_hostname, { all }, callback) => {
      this.#rules.check(target).then(
        (addresses) => {
          const found = addresses.map((address) => ({ address, family: isIP(address) }))
          const [first] = found
          if (!first) callback(new Error(`${target.host} has no address`), '')
          else if (all) callback(null, found)
          else callback(null, first.address, first.family)
        },
        (error) => callback(error, ''),
      )
    }
  }
}

function keyOf(target: ForwardTarget, way: WayToUpstream): string {
  const { carrier, verifyTls, tlsMinVersion, http2, proxyProtocol } = way
  const url = urlOf(target, carrier)
  return isSecure(target) ? [url, verifyTls, tlsMinVersion, http2, proxyProtocol].join(' ') : url
}

function urlOf(target: ForwardTarget, carrier: Carrier): string {
  return `${carrier}://${formatForwardTarget(target)}`
}

const CONNECTIONS = '/proc/self/net/tcp'
const FILES = '/proc/self/fd'
const LOOPBACK = '127.0.0.1'
/** In the byte order of the machine. */
const LOOPBACK_HEX = '(?:0100007F|7F000001)'

/**
 * Whether the other end of an accepted connection to 127.0.0.1 is a socket of this process, as the system
 * has it; false where that cannot be read. Only Linux tells: true elsewhere.
 */
export async function isOfThisProcess(client: Socket): Promise<boolean> {
  if (process.platform !== 'linux') return true
  const { remoteAddress, remotePort, localPort } = client
  if (remoteAddress !== LOOPBACK || remotePort === undefined || localPort === undefined)
    return false
  try {
    const inode = inodeIn(await readFile(CONNECTIONS, 'latin1'), remotePort, localPort)
    return inode !== undefined && readdirSync(FILES).some((file) => isSocket(file, inode))
  } catch {
    return false
  }
}

/** A socket that nobody has any more has the inode 0. */
function inodeIn(connections: string, from: number, to: number): string | undefined {
  const [own, other] = [from, to].map((port) => port.toString(16).toUpperCase().padStart(4, '0'))
  // sl, local and remote address, state, queues, timer, retransmits, uid, timeout, inode
  const line = `: ${LOOPBACK_HEX}:${own} ${LOOPBACK_HEX}:${other} \\S+ \\S+ \\S+ \\S+ +\\d+ +\\d+ (\\d+) `
  return new RegExp(line).exec(connections)?.[1]
}

function isSocket(file: string, inode: string): boolean {
  try {
    return readlinkSync(`${FILES}/${file}`) === `socket:[${inode}]`
  } catch {
    // Closed meanwhile.
    return false
  }
}

/** More than the streams of a session. */
const MAX_CONNECTIONS = 512
/** A machine that is switched off would hold visitors up for minutes. */
const DIAL_MS = 10_000

/** How a service is spoken to. */
export interface WayToUpstream {
  readonly carrier: Carrier
  /** Those of `ConnectionWish`, of interest where TLS is spoken. */
  readonly verifyTls: boolean
  readonly tlsMinVersion?: TlsMinVersion | undefined
  readonly http2: boolean
  readonly proxyProtocol?: ProxyProtocol | undefined
}

/** Of who sends no requests the refusal is without a word. */
interface UpstreamRelayOptions extends WayToUpstream {
  readonly target: ForwardTarget
  /** Gives checked addresses only; unset for what is no name. */
  readonly lookup: LookupFunction | undefined
  /** Asked before each connection, where nothing is looked up; throws where it may not be made. */
  readonly check: (() => Promise<unknown>) | undefined
  readonly log: Logger
}

/**
 * What the SDK dials in place of a name, a path, or a service that speaks TLS: the SDK would look the
 * name up by itself, and get another address than the one that was checked, as a path may have become
 * a link to elsewhere; and it says of no certificate why it does not trust it. TCP, so that a reset on
 * one side is one on the other. A path has a mode and a port has none: a port that leads to one is for
 * this process alone.
 */
export class UpstreamRelay {
  readonly #options: UpstreamRelayOptions
  readonly #server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
    this.#relay(socket),
  )
  readonly #listening: Promise<unknown>

  constructor(options: UpstreamRelayOptions) {
    this.#options = options
    this.#server.maxConnections = MAX_CONNECTIONS
    this.#server.listen(0, LOOPBACK)
    this.#listening = once(this.#server, 'listening')
    // Whoever asks for the port is told; until then nobody misses it.
    this.#listening.catch(() => {})
  }

  /** Where the SDK finds it. Throws when it could not listen. */
  async dialUrl(): Promise<string> {
    await this.#listening
    return `${this.#options.carrier}://${LOOPBACK}:${(this.#server.address() as AddressInfo).port}`
  }

  /** Takes no more connections; those that there are go on. */
  close(): void {
    this.#server.close()
  }

  #relay(client: Socket): void {
    // What is under way does not keep a process that has stopped.
    client.unref()
    const gone = new AbortController()
    const onGone = () => gone.abort(new Error('nobody waits for it'))
    client.on('error', onGone).on('close', onGone)
    abortedAfter(DIAL_MS, gone.signal, (signal) => this.#dial(client, signal)).then(
      (upstream) => {
        upstream.unref()
        client.off('error', onGone).off('close', onGone)
        if (client.destroyed) upstream.destroy()
        else this.#join(client, upstream)
      },
      (error) => this.#refuse(client, error),
    )
  }

  async #dial(client: Socket, signal: AbortSignal): Promise<Socket> {
    const { target, check, proxyProtocol, ...wish } = this.#options
    if ('path' in target && !(await isOfThisProcess(client))) {
      client.destroy()
      throw new Error('another process has asked')
    }
    await check?.()
    // Before TLS, which nobody who passes bytes on could put it into.
    const isAhead = proxyProtocol !== undefined && isSecure(target)
    const preface = isAhead ? await readProxyHeader(client, signal) : undefined
    return connectUpstream(target, { ...wish, preface, allowHalfOpen: true, signal })
  }

  #join(client: Socket, upstream: Socket): void {
    client.on('error', () => breakOff(upstream))
    client.on('close', () => upstream.destroy())
    upstream.on('error', () => this.#breakOff(client, upstream))
    client.pipe(upstream).pipe(client)
  }

  /** Who has answered as a whole may stop to listen; all else is a part that must not look whole. */
  #breakOff(client: Socket, upstream: Socket): void {
    if (upstream.readableEnded) client.resume()
    else client.resetAndDestroy()
  }

  /** As the SDK says it, so that visitors learn the same. */
  #refuse(client: Socket, error: Error): void {
    const { target, carrier, log } = this.#options
    const to = formatForwardTarget(target)
    log.debug({ to, reason: error.message }, 'upstream not reached')
    const body = `failed to dial backend: ${to} ${refusalOf(error)}`
    client.resume()
    if (carrier !== 'http') {
      client.end()
      return
    }
    client.end(
      'HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n' +
        `content-length: ${Buffer.byteLength(body)}\r\ndate: ${new Date().toUTCString()}\r\n\r\n${body}`,
    )
  }
}

function refusalOf(error: NodeJS.ErrnoException): string {
  if (error instanceof HandshakeError) {
    if (error.kind === 'untrusted') return 'shows a certificate that is not trusted'
    if (error.kind === 'old-tls') return 'speaks a TLS that is too old'
  }
  return error.code === 'ECONNRESET' ? 'answers with a connection reset' : 'cannot be reached'
}

/** What is put in front of all that a visitor sends; the rest stays to be read. */
function readProxyHeader(client: Socket, signal: AbortSignal): Promise<Buffer> {
  let bytes: Buffer = Buffer.alloc(0)
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => {
      client.pause().off('data', onData).off('end', onEnd)
      signal.removeEventListener('abort', onAbort)
      act()
    }
    const onAbort = () => settle(() => reject(signal.reason))
    const onEnd = () =>
      settle(() => reject(new Error('the connection ended before its PROXY header')))
    const onData = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      try {
        const length = proxyHeaderLength(bytes)
        if (length === undefined) return
        settle(() => client.unshift(bytes.subarray(length)))
        resolve(bytes.subarray(0, length))
      } catch (error) {
        settle(() => reject(error))
      }
    }
    client.on('data', onData).on('end', onEnd)
    signal.addEventListener('abort', onAbort)
  })
}
