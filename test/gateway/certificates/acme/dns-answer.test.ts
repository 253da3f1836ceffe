import { type Answer, decode, encode, type Packet, type RecordType } from 'dns-packet'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  answerDns,
  answerDnsReading,
  type DnsTransport,
} from '../../../../src/gateway/certificates/acme/dns-answer.ts'
import {
  ChallengeZone,
  type ZoneView,
} from '../../../../src/gateway/certificates/acme/order-book.ts'

const NAME = 'a1.acme.gateway.test'
const VALUE = 'x'.repeat(43)

function openZone(values: readonly string[] = [VALUE]) {
  const zone = new ChallengeZone('acme.gateway.test')
  for (const value of values) zone.publish(NAME, value)
  return zone
}

const question = (name: string, type: RecordType = 'TXT'): Packet => ({
  type: 'query',
  id: 4_711,
  questions: [{ name, type, class: 'IN' }],
})

function ask(query: Packet, zone: ZoneView = openZone(), transport: DnsTransport = 'udp') {
  const reply = answerDns(encode(query), zone, transport)
  if (!reply) return undefined
  const { id, flags = 0, flag_aa, flag_tc, flag_ra, ...sections } = decode(reply)
  return { ...sections, id, rcode: flags & 0xf, flag_aa, flag_tc, flag_ra, size: reply.length }
}

const types = (answers: Answer[] | undefined) => answers?.map(({ type }) => type)
const opt = (options: { udpPayloadSize?: number; ednsVersion?: number } = {}): Answer => ({
  type: 'OPT',
  name: '.',
  udpPayloadSize: 4_096,
  extendedRcode: 0,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
  ...options,
})

describe('the name server of the challenge zone', () => {
  it('answers with the published values, in the spelling of the question', () => {
    const reply = ask(question('A1.Acme.Gateway.TEST'), openZone([VALUE, 'second']))
    expect(reply).toMatchObject({ id: 4_711, rcode: 0, flag_aa: true, flag_ra: false })
    expect(reply?.questions?.[0]?.name).toBe('A1.Acme.Gateway.TEST')
    expect(reply?.answers).toMatchObject([
      { type: 'TXT', name: 'A1.Acme.Gateway.TEST', data: [Buffer.from(VALUE)] },
      { type: 'TXT', data: [Buffer.from('second')] },
    ])
  })

  it('says that it does not know while nobody knows, so that another server is asked', () => {
    const zone = { name: 'acme.gateway.test', valuesOf: () => undefined }
    expect(ask(question(NAME), zone)).toMatchObject({ rcode: 2, flag_aa: false, answers: [] })
    expect(ask(question('acme.gateway.test', 'SOA'), zone)?.rcode).toBe(0)
  })

  it.each<[string, Buffer, number, number]>([
    ['the TXT records of a name', encode(question(NAME)), 1, 1],
    ['those of a name in another spelling', encode(question(NAME.toUpperCase())), 1, 1],
    ['another type at a name', encode(question(NAME, 'A')), 0, 0],
    ['its own SOA', encode(question('acme.gateway.test', 'SOA')), 0, 1],
    ['its own NS', encode(question('acme.gateway.test', 'NS')), 0, 1],
    ['the TXT records at its top', encode(question('acme.gateway.test')), 0, 0],
    ['what is not its own', encode(question('a1.example.com')), 0, 0],
    ['a newer EDNS', encode({ ...question(NAME), additionals: [opt({ ednsVersion: 1 })] }), 0, 0],
  ])('reads what is published only where it answers with it: %s', async (...row) => {
    const [, message, reads, answers] = row
    let count = 0
    const read = async () => {
      count += 1
      return openZone()
    }
    const reply = await answerDnsReading(message, { name: 'acme.gateway.test', read }, 'udp')
    expect(decode(reply ?? Buffer.alloc(0)).answers).toHaveLength(answers)
    expect(count).toBe(reads)
    expect(reply).toEqual(answerDns(message, openZone(), 'udp'))
  })

  it('reads nothing for what is no question', async () => {
    const read = () => Promise.reject(new Error('it was read'))
    const zone = { name: 'acme.gateway.test', read }
    const response = encode({ ...question(NAME), type: 'response' })
    for (const message of [response, Buffer.from('garbage, and long enough for a header')]) {
      expect(await answerDnsReading(message, zone, 'udp')).toBeUndefined()
    }
  })

  it('forgets a value that was withdrawn, and keeps the others', () => {
    const zone = openZone([VALUE, 'second'])
    zone.withdraw(NAME, VALUE)
    expect(ask(question(NAME), zone)?.answers).toHaveLength(1)
    zone.withdraw(NAME, 'second')
    expect(ask(question(NAME), zone)?.rcode).toBe(3)
  })

  it.each<[string, string, RecordType, number, (string | undefined)[], (string | undefined)[]]>([
    ['its own SOA', 'acme.gateway.test', 'SOA', 0, ['SOA'], []],
    ['its own NS', 'acme.gateway.test', 'NS', 0, ['NS'], []],
    ['another type at its top', 'acme.gateway.test', 'A', 0, [], ['SOA']],
    ['another type at a name', NAME, 'CAA', 0, [], ['SOA']],
    ['another type at a name that is not there yet', 'b2.acme.gateway.test', 'A', 0, [], ['SOA']],
    ['a name that is not there', 'b2.acme.gateway.test', 'TXT', 3, [], ['SOA']],
    ['a name below a name', `x.${NAME}`, 'TXT', 3, [], ['SOA']],
  ])('is authoritative for %s', (_what, name, type, rcode, answers, authorities) => {
    const reply = ask(question(name, type))
    expect(reply).toMatchObject({ rcode, flag_aa: true })
    expect(types(reply?.answers)).toEqual(answers)
    expect(types(reply?.authorities)).toEqual(authorities)
  })

  it.each(['gateway.test', 'evilacme.gateway.test', 'example.com', ''])(
    'refuses what is not its own: %j',
    (name) => {
      const reply = ask(question(name))
      expect(reply).toMatchObject({ rcode: 5, flag_aa: false, answers: [], authorities: [] })
    },
  )

  it('refuses another class and another operation', () => {
    const chaos: Packet = {
      ...question(NAME),
      questions: [{ name: NAME, type: 'TXT', class: 'CH' }],
    }
    expect(ask(chaos)?.rcode).toBe(5)
    const notify = 4 << 11
    expect(ask({ ...question(NAME), flags: notify })?.rcode).toBe(4)
  })

  it('answers EDNS in kind, and version 0 only', () => {
    const reply = ask({ ...question(NAME), additionals: [opt()] })
    expect(reply?.additionals).toMatchObject([{ type: 'OPT', udpPayloadSize: 1_232 }])
    expect(ask(question(NAME))?.additionals).toEqual([])
    const newer = ask({ ...question(NAME), additionals: [opt({ ednsVersion: 1 })] })
    expect(newer?.answers).toEqual([])
    expect(newer?.additionals).toMatchObject([{ extendedRcode: 1, ednsVersion: 0 }])
  })

  it('cuts an answer that does not fit into a packet, and gives it whole over TCP', () => {
    const zone = openZone(Array.from({ length: 20 }, (_, index) => `${index}-${VALUE}`))
    const cut = ask(question(NAME), zone)
    expect(cut).toMatchObject({ flag_tc: true, answers: [] })
    expect(cut?.size).toBeLessThanOrEqual(512)
    const more = ask({ ...question(NAME), additionals: [opt()] }, zone)
    expect(more?.size).toBeLessThanOrEqual(1_232)
    expect(ask(question(NAME), zone, 'tcp')?.answers).toHaveLength(20)
  })

  it('gives no answer to what is no question', () => {
    const zone = openZone()
    const response = encode({ ...question(NAME), type: 'response' })
    const twice = encode({
      ...question(NAME),
      questions: [...(question(NAME).questions ?? []), ...(question(NAME).questions ?? [])],
    })
    const answered = encode({
      ...question(NAME),
      answers: [{ type: 'A', name: NAME, data: '127.0.0.1' }],
    })
    for (const message of [Buffer.alloc(0), Buffer.alloc(12), response, twice, answered]) {
      expect(answerDns(message, zone, 'udp')).toBeUndefined()
    }
  })

  it('survives any bytes, and never sends much more than it got', () => {
    const zone = openZone()
    const whole = encode({ ...question(NAME), additionals: [opt()] })
    const damaged = fc
      .array(fc.tuple(fc.nat(whole.length - 1), fc.integer({ min: 0, max: 255 })), { maxLength: 8 })
      .map((changes) => {
        const message = Buffer.from(whole)
        for (const [at, byte] of changes) message[at] = byte
        return message
      })
    const anything = fc.uint8Array({ maxLength: 512 }).map((bytes) => Buffer.from(bytes))
    fc.assert(
      fc.property(fc.oneof(damaged, anything), (message) => {
        const reply = answerDns(message, zone, 'udp')
        expect(reply?.length ?? 0).toBeLessThanOrEqual(message.length + 160)
      }),
      { numRuns: 2_000 },
    )
  })
})
