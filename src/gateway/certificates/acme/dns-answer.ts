import {
  type Answer,
  AUTHORITATIVE_ANSWER,
  type DecodedPacket,
  decode,
  encode,
  type OptAnswer,
  RECURSION_DESIRED,
  TRUNCATED_RESPONSE,
} from 'dns-packet'
import { isInZone, type ZoneView } from './order-book.ts'

/** RFC 1035 section 4.1.1. */
const HEADER_BYTES = 12
const OPCODE_BITS = 0x78_00
const Rcode = {
  ok: 0,
  formatError: 1,
  serverFailure: 2,
  noSuchName: 3,
  notImplemented: 4,
  refused: 5,
} as const
/** RFC 6891 section 6.1.3: the upper bits are in the OPT record. */
const BAD_VERSION_UPPER = 1
/** RFC 1035 section 4.2.1: limit for clients that do not announce more. */
const PLAIN_UDP_BYTES = 512
/** Fits into one packet on every common link. */
const EDNS_UDP_BYTES = 1_232
/** Values exist for about a minute. A resolver that asked too early should ask again soon. */
const TTL_S = 5
/** OPT and TSIG; no client sends more. */
const MAX_ADDITIONALS = 2

export type DnsTransport = 'udp' | 'tcp'

interface Verdict {
  readonly rcode: number
  readonly answers?: Answer[]
  readonly authorities?: Answer[]
}

/**
 * Answers one DNS message as the zone's name server: authoritative, never recursive, a few hundred bytes at
 * most. Undefined if the message is no DNS query. Reads values of the zone only for TXT records of names
 * below its own name.
 */
export function answerDns(
  message: Buffer,
  zone: ZoneView,
  transport: DnsTransport,
): Buffer | undefined {
  try {
    // Checks the counts first, because false counts would make the decoder work.
    if (!isQuestion(message)) return undefined
    return encodeAnswer(decode(message), zone, transport)
  } catch {
    return undefined
  }
}

/** The same for a zone whose values must be read first. `read` is only called if the answer needs values. */
export async function answerDnsReading(
  message: Buffer,
  zone: { readonly name: string; readonly read: () => Promise<ZoneView> },
  transport: DnsTransport,
): Promise<Buffer | undefined> {
  let isAsked = false
  const valuesOf = () => {
    isAsked = true
    return undefined
  }
  const unread = answerDns(message, { name: zone.name, valuesOf }, transport)
  return isAsked ? answerDns(message, await zone.read(), transport) : unread
}

function isQuestion(message: Buffer): boolean {
  return (
    message.length > HEADER_BYTES &&
    message.readUInt16BE(2) >> 15 === 0 &&
    message.readUInt16BE(4) === 1 &&
    message.readUInt32BE(6) === 0 &&
    message.readUInt16BE(10) <= MAX_ADDITIONALS
  )
}

function encodeAnswer(query: DecodedPacket, zone: ZoneView, transport: DnsTransport): Buffer {
  const opt = query.additionals?.find((record): record is OptAnswer => record.type === 'OPT')
  const isNewer = opt !== undefined && (opt.ednsVersion ?? 0) > 0
  const verdict = isNewer ? { rcode: Rcode.ok } : judge(query, zone)
  const reply = (flags: number, records: Omit<Verdict, 'rcode'>) =>
    encode({
      type: 'response',
      id: query.id ?? 0,
      flags: flags | ((query.flags ?? 0) & (OPCODE_BITS | RECURSION_DESIRED)),
      questions: query.questions ?? [],
      answers: records.answers ?? [],
      authorities: records.authorities ?? [],
      additionals: opt ? [createOpt(isNewer ? BAD_VERSION_UPPER : 0)] : [],
    })
  const isOurs = verdict.rcode === Rcode.ok || verdict.rcode === Rcode.noSuchName
  const flags = verdict.rcode | (isOurs && !isNewer ? AUTHORITATIVE_ANSWER : 0)
  const whole = reply(flags, verdict)
  return transport === 'tcp' || whole.length <= maxUdpBytes(opt)
    ? whole
    : reply(flags | TRUNCATED_RESPONSE, {})
}

function judge({ flags = 0, questions }: DecodedPacket, zone: ZoneView): Verdict {
  if ((flags & OPCODE_BITS) !== 0) return { rcode: Rcode.notImplemented }
  const [question] = questions ?? []
  if (!question) return { rcode: Rcode.formatError }
  const name = question.name.toLowerCase()
  if (question.class !== 'IN' || !isInZone(name, zone)) return { rcode: Rcode.refused }
  if (name === zone.name) return apexVerdict(zone, question.type)
  // Only TXT records exist, for any name.
  if (question.type !== 'TXT') return { rcode: Rcode.ok, authorities: [soaOf(zone)] }
  const values = zone.valuesOf(name)
  // Not NXDOMAIN, after which clients would not ask another server.
  if (!values) return { rcode: Rcode.serverFailure }
  if (values.length === 0) return { rcode: Rcode.noSuchName, authorities: [soaOf(zone)] }
  // Resolvers require the name in the spelling of their query.
  const answers = values.map(
    (data): Answer => ({ type: 'TXT', name: question.name, ttl: TTL_S, data }),
  )
  return { rcode: Rcode.ok, answers }
}

function apexVerdict(zone: ZoneView, type: string): Verdict {
  if (type === 'SOA') return { rcode: Rcode.ok, answers: [soaOf(zone)] }
  if (type === 'NS') {
    const answers: Answer[] = [{ type: 'NS', name: zone.name, ttl: TTL_S, data: serverOf(zone) }]
    return { rcode: Rcode.ok, answers }
  }
  return { rcode: Rcode.ok, authorities: [soaOf(zone)] }
}

function soaOf(zone: ZoneView): Answer {
  const mname = serverOf(zone)
  const data = {
    mname,
    rname: `hostmaster.${mname}`,
    serial: 1,
    refresh: 3_600,
    retry: 600,
    expire: 604_800,
    minimum: TTL_S,
  }
  return { type: 'SOA', name: zone.name, ttl: TTL_S, data }
}

/** The name above the zone leads to this gateway. */
function serverOf({ name }: ZoneView): string {
  return name.slice(name.indexOf('.') + 1)
}

function createOpt(extendedRcode: number): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: EDNS_UDP_BYTES,
    extendedRcode,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  }
}

function maxUdpBytes(opt: OptAnswer | undefined): number {
  if (!opt) return PLAIN_UDP_BYTES
  return Math.min(EDNS_UDP_BYTES, Math.max(PLAIN_UDP_BYTES, opt.udpPayloadSize))
}
