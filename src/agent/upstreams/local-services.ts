import { createReadStream } from 'node:fs'
import { readdir, readlink } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { endianness } from 'node:os'
import { abortedAfter } from '../../base/deadline.ts'
import { request } from '../../base/net/node-http.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { formatForwardTarget, type HostTarget } from './forward-target.ts'
import { connectUpstream } from './upstream-connection.ts'

/** A service that listens on this device. */
export interface LocalService {
  readonly port: number
  /** Normal form, see `formatForwardTarget`. */
  readonly forwardsTo: string
  /** `tcp`: it does not answer HTTP, or was not asked. */
  readonly protocol: 'http' | 'tcp'
  /** Whether a request was sent to the service. */
  readonly isAsked: boolean
  /** Title of its start page, or name of its protocol. */
  readonly title: string | undefined
}

const TABLES = ['/proc/net/tcp', '/proc/net/tcp6']
/** Listening sockets come first in the tables. */
const MAX_TABLE_BYTES = 256 * 1024
const MAX_SERVICES = 40
const MAX_AT_ONCE = 8
const ASK_MS = 1_500
/** Characters of a page that are searched for its title. */
const MAX_PAGE = 32 * 1024
const MAX_RAW_TITLE = 400
const MAX_TITLE = 80
const MAX_REDIRECTS = 1

/** Names of other protocols. These services are never asked, also within the ranges of `WEB_PORTS`. */
const NAMES: Readonly<Record<number, string>> = {
  22: 'SSH',
  23: 'Telnet',
  25: 'SMTP',
  53: 'DNS',
  102: 'Siemens S7',
  111: 'RPC',
  139: 'SMB',
  445: 'SMB',
  502: 'Modbus',
  515: 'Printer',
  554: 'RTSP',
  1433: 'SQL Server',
  1883: 'MQTT',
  2404: 'IEC 60870-5-104',
  3306: 'MySQL',
  3389: 'RDP',
  4840: 'OPC UA',
  5432: 'PostgreSQL',
  5900: 'VNC',
  6379: 'Redis',
  8009: 'AJP',
  8501: 'Keyence KV',
  8554: 'RTSP',
  8728: 'RouterOS',
  8729: 'RouterOS',
  8883: 'MQTT',
  9100: 'Printer',
  11740: 'CODESYS',
  20000: 'DNP3',
  27017: 'MongoDB',
  44818: 'EtherNet/IP',
}

/**
 * Usual ports of web pages, the only ones that are asked. Controllers and printers on other ports may act on any
 * text, stop, or log it as an attack.
 */
const WEB_PORTS: readonly { readonly from: number; readonly to?: number; readonly use: string }[] =
  [
    { from: 80, to: 81, use: 'HTTP' },
    { from: 443, use: 'HTTPS' },
    { from: 591, use: 'FileMaker, registered for HTTP' },
    { from: 1880, use: 'Node-RED' },
    { from: 2368, use: 'Ghost' },
    { from: 3000, to: 3010, use: 'Grafana, Node.js' },
    { from: 5000, to: 5001, use: 'Flask, Synology' },
    { from: 5173, use: 'Vite' },
    { from: 8000, to: 8999, use: 'HTTP of users without root; 8123 Home Assistant' },
    { from: 9000, use: 'Portainer' },
    { from: 9090, use: 'Cockpit, Prometheus' },
    { from: 9443, use: 'Portainer with TLS' },
  ]

/** Port of the sample service of `up`, the only listener of this process that a tunnel may lead to. */
export const SAMPLE_PORT = 7041

/** Inodes of the sockets of this process, such as relays. Empty on systems without /proc. */
export async function ownSockets(): Promise<ReadonlySet<string>> {
  const folder = '/proc/self/fd'
  const names = await readdir(folder).catch(() => [])
  const links = await Promise.all(
    names.map((name) => readlink(`${folder}/${name}`).catch(() => '')),
  )
  return new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []))
}

interface FindServices {
  /** Whether a tunnel may lead there. False for listeners of the agent. */
  readonly isAllowed: (target: HostTarget) => Promise<boolean>
  readonly signal: AbortSignal
  /** Inodes of listeners that no tunnel should lead to. */
  readonly hidden?: ReadonlySet<string> | undefined
  /** Tables of the kernel. Default: those of IPv4 and IPv6. */
  readonly tables?: readonly string[] | undefined
}

/**
 * Finds the allowed services that listen on loopback or on all addresses, and asks those on `WEB_PORTS` for the
 * title of their start page. Sorted by port. Empty on systems without /proc.
 */
export async function findServices(options: FindServices): Promise<LocalService[]> {
  const { isAllowed, signal, hidden, tables = TABLES } = options
  const texts = await Promise.all(tables.map(readTable))
  const targets = new Map<number, HostTarget>()
  for (const { inode, ...target } of texts.flatMap(listenersIn)) {
    if (hidden?.has(inode) && target.port !== SAMPLE_PORT) continue
    // A service on both loopback addresses is reached by its name.
    if (targets.get(target.port)?.host !== 'localhost') targets.set(target.port, target)
  }
  const sorted = [...targets.values()].sort((a, b) => a.port - b.port)
  const allowed = await Promise.all(sorted.map(isAllowed))
  const slots = new Semaphore(MAX_AT_ONCE)
  return Promise.all(
    sorted
      .filter((_, at) => allowed[at])
      .slice(0, MAX_SERVICES)
      .map((target) => slots.run(() => describe(target, signal))),
  )
}

async function readTable(path: string): Promise<string> {
  let text = ''
  try {
    for await (const chunk of createReadStream(path, {
      encoding: 'latin1',
      end: MAX_TABLE_BYTES - 1,
    })) {
      text += chunk
    }
  } catch {
    // Not on this system.
  }
  return text
}

const LISTEN = '0A'
const WORD = /.{8}/g
const BYTE = /../g
const ANY = /^0+$/
const LOOPBACK = /^(?:0{20}FFFF)?7F000001$/
const LOOPBACK_6 = /^0{31}1$/

/** Reads the listening sockets of a table of the Linux kernel: number, local and remote address, state. */
function listenersIn(table: string): (HostTarget & { readonly inode: string })[] {
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/)
    const [hex = '', portHex = ''] = local.split(':')
    const port = Number.parseInt(portHex, 16)
    const host = hostOf(inNetworkOrder(hex))
    return state === LISTEN && host && port > 0 ? [{ host, port, inode }] : []
  })
}

/** The table has each word of an address in the byte order of the machine. */
function inNetworkOrder(hex: string): string {
  if (endianness() === 'BE') return hex
  const words = hex.match(WORD) ?? []
  return words.map((word) => (word.match(BYTE) ?? []).reverse().join('')).join('')
}

function hostOf(address: string): string | undefined {
  if (ANY.test(address) || LOOPBACK.test(address)) return 'localhost'
  return LOOPBACK_6.test(address) ? '::1' : undefined
}

async function describe(target: HostTarget, signal: AbortSignal): Promise<LocalService> {
  const { port } = target
  const name = NAMES[port]
  const plain = {
    port,
    forwardsTo: formatForwardTarget(target),
    protocol: 'tcp',
    isAsked: name === undefined && isWebPort(port),
    title: name,
  } as const
  if (!plain.isAsked) return plain
  const answer = await askStartPage(target, signal)
  // A server with TLS answers plain HTTP with an error or not at all.
  if (answer && answer.status !== 400) return { ...plain, protocol: 'http', title: answer.title }
  const secure = { ...target, isSecure: true } as const
  const encrypted = await askStartPage(secure, signal)
  if (encrypted) {
    const forwardsTo = formatForwardTarget(secure)
    return { ...plain, forwardsTo, protocol: 'http', title: encrypted.title }
  }
  return answer ? { ...plain, protocol: 'http', title: answer.title } : plain
}

function isWebPort(port: number): boolean {
  return WEB_PORTS.some(({ from, to = from }) => from <= port && port <= to)
}

interface StartPage {
  readonly status: number
  readonly title: string | undefined
}

/** Undefined if the service does not answer HTTP in time. */
async function askStartPage(
  target: HostTarget,
  signal: AbortSignal,
  path = '/',
  redirects = MAX_REDIRECTS,
): Promise<StartPage | undefined> {
  try {
    const [response, text] = await abortedAfter(ASK_MS, signal, (within) =>
      get(target, path, within),
    )
    const { statusCode: status = 0, headers } = response
    const { location = '' } = headers
    const isOwnPath = /^\/(?!\/)/.test(location) && status >= 300 && status < 400
    const next =
      isOwnPath && redirects > 0
        ? await askStartPage(target, signal, location, redirects - 1)
        : undefined
    return next?.title === undefined ? { status, title: titleIn(text, response) } : next
  } catch {
    return undefined
  }
}

async function get(
  target: HostTarget,
  path: string,
  signal: AbortSignal,
): Promise<[IncomingMessage, string]> {
  const socket = await connectUpstream(target, { verifyTls: false, signal })
  const giveUp = () => socket.destroy()
  signal.addEventListener('abort', giveUp)
  try {
    const headers = { host: `localhost:${target.port}`, connection: 'close', accept: 'text/html' }
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = request({ path, headers, createConnection: () => socket })
      sent.on('response', resolve).on('error', reject).end()
    })
    let text = ''
    // Each part is searched once: a page that comes in small parts must not take long.
    let end = ''
    for await (const chunk of response.setEncoding('utf8')) {
      text += chunk
      end += chunk
      if (text.length > MAX_PAGE || TITLE_END.test(end)) break
      end = end.slice(-'</title'.length)
    }
    return [response, text.slice(0, MAX_PAGE)]
  } finally {
    signal.removeEventListener('abort', giveUp)
    socket.destroy()
  }
}

/** Takes linear time on any page: attributes end before the next tag. */
const TITLE_START = /<title(?:\s[^<>]{0,200})?>/i
const TITLE_END = /<\/title/i
const REALM = /realm="([^"]*)"/i
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  '#39': "'",
}

/** Title of the page, else the name with which the server asks for a password, else of the server. */
function titleIn(page: string, { headers }: IncomingMessage): string | undefined {
  const text =
    titleElementIn(page) ||
    REALM.exec(headers['www-authenticate'] ?? '')?.[1] ||
    String(headers.server ?? '')
  const clean = text
    .replace(/&(amp|lt|gt|quot|#39);/g, (all, name: string) => ENTITIES[name] ?? all)
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
  return clean === '' ? undefined : clean.slice(0, MAX_TITLE)
}

function titleElementIn(page: string): string | undefined {
  const start = TITLE_START.exec(page)
  if (!start) return undefined
  const at = start.index + start[0].length
  const raw = page.slice(at, at + MAX_RAW_TITLE)
  const end = TITLE_END.exec(raw)
  return end ? raw.slice(0, end.index).trim() : undefined
}
