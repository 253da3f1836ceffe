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

/** Ensures that only allowed targets are dialled. Names and paths are checked for each connection. */
export class UpstreamDialer {
  readonly #rules: ForwardRules
  readonly #log: Logger
  /** If the hosts file has localhost, the SDK can resolve it itself, which saves a relay. */
  readonly #systemHasLocalhost: boolean
  readonly #held = new Map<string, Held>()

  constructor(rules: ForwardRules, log: Logger, systemHasLocalhost = hostsFileHasLocalhost()) {
    this.#rules = rules
    this.#log = log
    this.#systemHasLocalhost = systemHasLocalhost
  }

  /** Keeps the relay of a target, if it needs one, until the returned function is called. */
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

  /** Returns the URL that the SDK has to dial for a held target. */
  async dialUrl(target: ForwardTarget, way = PLAIN_HTTP): Promise<string> {
    const relay = this.#held.get(keyOf(target, way))?.relay
    return (await relay?.dialUrl()) ?? urlOf(target, way.carrier)
  }

  /**
   * Returns a lookup function for `connect`, which returns the allowed addresses of the target's name, or an
   * error. Undefined if no DNS lookup is needed: for addresses, and for localhost in the hosts file.
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
 * Whether the other end of an accepted connection to 127.0.0.1 is a socket of this process, according to the
 * system. False if that cannot be read. True on systems other than Linux, which do not show it.
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

/** Returns the inode of a connection's socket. A closed socket has the inode 0. */
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
    // Closed in the meantime.
    return false
  }
}

/** More than the streams of a session. */
const MAX_CONNECTIONS = 512
/** Without this limit, a machine that is switched off would block visitors for minutes. */
const DIAL_MS = 10_000

/** Protocol options for a service. */
export interface WayToUpstream {
  readonly carrier: Carrier
  /** As in `ConnectionWish`. Used only with TLS. */
  readonly verifyTls: boolean
  readonly tlsMinVersion?: TlsMinVersion | undefined
  readonly http2: boolean
  readonly proxyProtocol?: ProxyProtocol | undefined
}

/** If `carrier` is not `http`, a refused connection is closed without an answer. */
interface UpstreamRelayOptions extends WayToUpstream {
  readonly target: ForwardTarget
  /** Returns only allowed addresses. Undefined if the target is not a name. */
  readonly lookup: LookupFunction | undefined
  /** Called before each connection if there is no lookup. Throws if the connection is not allowed. */
  readonly check: (() => Promise<unknown>) | undefined
  readonly log: Logger
}

/**
 * Local TCP relay that the SDK dials for a name, a path, or a TLS service.
 *
 * - Name: the SDK would look it up itself, and might get another address than the allowed one.
 * - Path: it may have become a link to another path.
 * - TLS: the SDK does not report why it does not trust a certificate.
 *
 * The relay uses TCP, so that a reset on one side becomes a reset on the other. A socket file has permissions
 * and a port has none, so a relay to a path accepts only connections of this process.
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
    // The error is reported by `dialUrl()`. Without this handler it would be an unhandled rejection.
    this.#listening.catch(() => {})
  }

  /** Returns the URL for the SDK. Throws if the relay could not listen. */
  async dialUrl(): Promise<string> {
    await this.#listening
    return `${this.#options.carrier}://${LOOPBACK}:${(this.#server.address() as AddressInfo).port}`
  }

  /** Stops accepting connections. Existing connections continue. */
  close(): void {
    this.#server.close()
  }

  #relay(client: Socket): void {
    // Open connections do not keep the process running.
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
    // The header has to be sent before TLS, so a proxy that passes bytes on cannot insert it.
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

  /**
   * Handles a failed upstream. A service may stop reading after a complete answer. Otherwise the answer is
   * incomplete, so the client gets a reset.
   */
  #breakOff(client: Socket, upstream: Socket): void {
    if (upstream.readableEnded) client.resume()
    else client.resetAndDestroy()
  }

  /** Answers with the same text as the SDK, so that visitors see no difference. */
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

/** Reads the PROXY header before the visitor's data. The data stays unread. */
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
