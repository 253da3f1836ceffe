import { lookup } from 'node:dns/promises'
import { realpathSync, statSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { basename, dirname, join } from 'node:path'
import ipaddr from 'ipaddr.js'
import { AppError, StartError } from '../../base/app-error.ts'
import { withDeadline } from '../../base/deadline.ts'
import { type ListenAddress, LOCALHOST_ADDRESSES } from '../../base/listen-address.ts'
import { neverDialled, reachedAddress } from '../../base/net/network.ts'
import {
  type ForwardTarget,
  formatForwardTarget,
  type HostTarget,
  parseForwardTarget,
} from './forward-target.ts'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Range = [Address, number]

/** An entry of the allow list: a host, a range or a path, and an optional port. */
interface AllowRule {
  readonly host: string | undefined
  readonly range: Range | undefined
  readonly port: number | undefined
  /** A unix socket, or a folder if it ends with a slash. */
  readonly path?: string
}

const UNIX = 'unix:'
const DENIED_NAMES = new Set(['metadata', 'metadata.google.internal', 'instance-data'])
/** Time limit for resolving a name. */
const LOOKUP_MS = 3_000

export interface ForwardRulesOptions {
  /** Hosts or CIDRs, each with an optional `:port`, `unix:/path` of a socket, or `unix:/folder/`. */
  readonly allow: readonly string[]
  /** The agent's own sockets, which need no token. */
  readonly ownSockets?: (() => readonly string[]) | undefined
  /** The agent's own listeners. Called at each check, because a port may not be known earlier. */
  readonly ownAddresses: () => readonly ListenAddress[]
  /** Returns all addresses of a name, empty if it cannot be resolved. */
  readonly resolve?: (name: string) => Promise<readonly string[]>
}

/**
 * Allowed targets of tunnels: loopback, and the list of the device's owner. Otherwise anyone with an API
 * token could reach the device's network.
 */
export class ForwardRules {
  readonly #allow: readonly AllowRule[]
  readonly #ownAddresses: ForwardRulesOptions['ownAddresses']
  readonly #ownSockets: () => readonly string[]
  readonly #resolve: (name: string) => Promise<readonly string[]>

  constructor(options: ForwardRulesOptions) {
    const { allow, ownAddresses, ownSockets = () => [], resolve = resolveName } = options
    this.#ownSockets = ownSockets
    this.#allow = allow.map((text) => {
      const rule = parseRule(text)
      if (typeof rule === 'string') throw new StartError(`AGENT_FORWARD_ALLOW: ${rule}.`)
      return rule
    })
    this.#ownAddresses = ownAddresses
    this.#resolve = resolve
  }

  /**
   * Returns the addresses of a target, all of which are allowed. Empty for a socket. Throws AppError
   * `forwards-to-not-allowed` with the rule. A name is resolved at each call. If it cannot be resolved, the
   * result is empty.
   */
  async check(target: ForwardTarget): Promise<readonly string[]> {
    if ('path' in target) {
      this.#checkPath(target.path)
      return []
    }
    const { host, port } = target
    if (DENIED_NAMES.has(host)) throw refused(target, `${host} is always blocked`)
    const literal = ipaddr.isValid(host) ? reachedAddress(ipaddr.parse(host)) : undefined
    if (literal) {
      this.#checkAddress(target, literal, this.#allows(literal, port))
      return [host]
    }
    const isListed = host === 'localhost' || this.#allow.some((rule) => fits(rule, host, port))
    if (!isListed) {
      throw refused(target, `${host} is not in AGENT_FORWARD_ALLOW, which needs exactly this name`)
    }
    // DNS may return any address for localhost, but clients connect to loopback.
    const addresses = host === 'localhost' ? LOCALHOST_ADDRESSES : await this.#resolve(host)
    for (const address of addresses)
      this.#checkAddress(target, reachedAddress(ipaddr.parse(address)), true)
    return addresses
  }

  #checkPath(path: string): void {
    if (this.#ownSockets().some((own) => own === path || isSameFile(own, path))) {
      throw refused({ path }, 'the socket belongs to the agent')
    }
    const listed = this.#allow.flatMap(({ path: it }) => it ?? [])
    if (!listed.some((it) => covers(it, path))) {
      throw refused({ path }, `unix:${path} is not in AGENT_FORWARD_ALLOW`)
    }
    // The path may be a link to another path. Folders of listed paths may be links too.
    const real = realPath(path)
    if (![...listed, ...listed.map(realRule)].some((it) => covers(it, real))) {
      throw refused({ path }, `unix:${path} links to a path that is not in AGENT_FORWARD_ALLOW`)
    }
  }

  #checkAddress(target: HostTarget, address: Address, isAllowed: boolean): void {
    const denied = neverDialled(address)
    if (denied) throw refused(target, `${denied} is always blocked`)
    if (this.#isOwn(address, target.port)) {
      throw refused(target, `port ${target.port} belongs to the agent`)
    }
    if (!isAllowed) throw refused(target, `${address} is not in AGENT_FORWARD_ALLOW`)
  }

  #allows(address: Address, port: number): boolean {
    if (address.range() === 'loopback') return true
    return this.#allow.some(
      ({ range, port: only }) =>
        range && matches(address, range) && (only === undefined || only === port),
    )
  }

  #isOwn(address: Address, port: number): boolean {
    if (!this.#ownAddresses().some((own) => own.port === port)) return false
    return address.range() === 'loopback' || isOfThisMachine(address)
  }
}

const NO_HOST = { host: undefined, range: undefined, port: undefined }

/** The problem of each entry of AGENT_FORWARD_ALLOW that is no rule. */
export function allowProblems(allow: readonly string[]): string[] {
  return allow.map(parseRule).filter((rule) => typeof rule === 'string')
}

/** Returns the entry of AGENT_FORWARD_ALLOW that allows a target: the list takes no `https://`. */
export function allowEntryFor(target: ForwardTarget): string {
  return formatForwardTarget('path' in target ? target : { host: target.host, port: target.port })
}

/** The rule of an entry, or its problem. */
function parseRule(text: string): AllowRule | string {
  if (text.startsWith(UNIX)) {
    const path = text.slice(UNIX.length)
    const socket = parseForwardTarget(`${UNIX}${path.replace(/\/$/, '/a')}`)
    if (socket && 'path' in socket) {
      return { ...NO_HOST, path: path.endsWith('/') ? socket.path.slice(0, -1) : socket.path }
    }
    return `${text} is not an absolute path of a socket or directory`
  }
  const [, bracketed, bare, digits] = /^(?:\[(.+)\]|([^[\]]+?))(?::(\d{1,5}))?$/.exec(text) ?? []
  // An IPv6 address without brackets ends like a port.
  if (ipaddr.isValid(text) || ipaddr.isValidCIDR(text)) return ruleOf(text, text, undefined)
  const port = digits === undefined ? undefined : Number(digits)
  return ruleOf(text, bracketed ?? bare ?? '', port)
}

function ruleOf(text: string, what: string, port: number | undefined): AllowRule | string {
  if (ipaddr.isValidCIDR(what)) return { host: undefined, range: ipaddr.parseCIDR(what), port }
  const target = parseForwardTarget(`${what.includes(':') ? `[${what}]` : what}:${port ?? 1}`)
  if (!target || 'path' in target || what === '') return notARule(text)
  if (!ipaddr.isValid(what)) return { host: target.host, range: undefined, port }
  const address = ipaddr.parse(what)
  return { host: undefined, range: [address, address.kind() === 'ipv4' ? 32 : 128], port }
}

/** People copy the URL of a tunnel's upstream or of a browser. */
function notARule(text: string): string {
  const problem = `${text} is not a host or CIDR with an optional :port`
  const [, scheme = '', authority = ''] = /^(\w+):\/\/([^/]+)/.exec(text) ?? []
  const port = SCHEME_PORTS[scheme]
  const target =
    parseForwardTarget(authority) ?? (port && parseForwardTarget(`${authority}:${port}`))
  return target ? `${problem}: write ${allowEntryFor(target)}` : problem
}

const SCHEME_PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, rtsp: 554, ssh: 22 }

function fits({ host, port: only }: AllowRule, name: string, port: number): boolean {
  return host === name && (only === undefined || only === port)
}

async function resolveName(host: string): Promise<string[]> {
  try {
    const found = await withDeadline(lookup(host, { all: true }), LOOKUP_MS, 'resolving')
    return found.map(({ address }) => address)
  } catch {
    return []
  }
}

function matches(address: Address, [range, bits]: Range): boolean {
  return address.kind() === range.kind() && address.match(range as never, bits)
}

function isOfThisMachine(address: Address): boolean {
  try {
    const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
    return own.some((entry) => entry.address === address.toString())
  } catch {
    // A sandbox without netlink does not show the addresses of this machine. Assume that it is one of them.
    return true
  }
}

function covers(listed: string, path: string): boolean {
  return listed.endsWith('/') ? path.startsWith(listed) : path === listed
}

/** Returns the path itself if it does not exist, because nothing can be reached there. */
function realPath(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}

/** Resolves links in the folder of a rule. A listed socket itself must not be a link. */
function realRule(path: string): string {
  return path.endsWith('/')
    ? join(realPath(path), '/')
    : join(realPath(dirname(path)), basename(path))
}

function isSameFile(a: string, b: string): boolean {
  try {
    const [first, second] = [statSync(a), statSync(b)]
    return first.ino === second.ino && first.dev === second.dev
  } catch {
    return false
  }
}

function refused(target: ForwardTarget, rule: string): AppError {
  return new AppError(
    'forwards-to-not-allowed',
    `Forwarding to ${formatForwardTarget(target)} is not allowed: ${rule}.`,
    { errors: [{ pointer: '/forwards_to', detail: rule }] },
  )
}
