import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv4 } from 'node:net'
import { type Answer, decode, encode } from 'dns-packet'
import { onTestFinished } from 'vitest'

/** Records of one name. A string is the target of a CNAME record, or an IPv4 address. */
type ZoneEntry =
  | string
  | { readonly A?: readonly string[]; readonly AAAA?: readonly string[]; readonly NS?: string }
export type DnsZone = Readonly<Record<string, ZoneEntry>>

export interface DnsServerOptions {
  /** Where it listens; default: a free port of loopback. */
  readonly listen?: { readonly host: string; readonly port: number }
  /** Called with how to close it; default: at the end of the running test. */
  readonly atEnd?: (close: () => void) => void
  /** True while it ignores questions; read at each. */
  readonly isSilent?: () => boolean
}

/** Longest chain of CNAME records that is followed. */
const MAX_CHAIN = 4

/**
 * Answers from a zone, read at each question; `*.` stands for one label. A CNAME record comes with the
 * records of its target.
 */
export async function startDnsServer(
  zone: DnsZone,
  {
    listen = { host: '127.0.0.1', port: 0 },
    atEnd = onTestFinished,
    isSilent,
  }: DnsServerOptions = {},
): Promise<string> {
  const socket = createSocket('udp4')
  socket.on('message', (message, { port, address }) => {
    if (isSilent?.()) return
    const { id, questions = [] } = decode(message)
    const name = questions[0]?.name.toLowerCase() ?? ''
    const answer = encode({
      type: 'response',
      id: id ?? 0,
      // 3 is NXDOMAIN.
      flags: find(zone, name) === undefined ? 3 : 0,
      questions,
      answers: answersFor(zone, name, questions[0]?.type ?? ''),
    })
    socket.send(answer, port, address)
  })
  socket.bind(listen.port, listen.host)
  await once(socket, 'listening')
  atEnd(() => void socket.close())
  return `${listen.host}:${socket.address().port}`
}

const find = (zone: DnsZone, name: string) => zone[name] ?? zone[name.replace(/^[^.]+/, '*')]

function answersFor(zone: DnsZone, name: string, type: string, depth = 0): Answer[] {
  const entry = find(zone, name)
  if (entry === undefined || depth > MAX_CHAIN) return []
  if (typeof entry === 'string' && isIPv4(entry)) {
    return type === 'A' ? [{ type, name, data: entry, ttl: 60 }] : []
  }
  if (typeof entry === 'string') {
    const alias: Answer = { type: 'CNAME', name, data: entry, ttl: 60 }
    return type === 'CNAME' ? [alias] : [alias, ...answersFor(zone, entry, type, depth + 1)]
  }
  if (type === 'NS') return entry.NS ? [{ type: 'NS', name, data: entry.NS, ttl: 60 }] : []
  if (type !== 'A' && type !== 'AAAA') return []
  return (entry[type] ?? []).map((data): Answer => ({ type, name, data, ttl: 60 }))
}
