import { expect, it } from 'vitest'
import {
  encodeFacts,
  FactsReader,
  MAX_CERTIFICATE_BYTES,
  MAX_HOPS,
  type VisitorFacts,
} from '../../../src/gateway/streams/visitor-facts.ts'

const FACTS: VisitorFacts = {
  version: 1,
  connection: 7,
  client_ip: '2001:db8::1',
  client_port: 50_000,
  server_ip: '10.0.0.1',
  server_port: 443,
  started_at: 1_900_000_000_000,
  entry: { kind: 'http', scheme: 'https' },
}
const INTERNAL = { owner_id: null, ask_depth: 0, hops: 1, withholds_login: false }

it('reads facts however they are cut, and nothing behind them', () => {
  const bytes = Buffer.concat([encodeFacts(FACTS), Buffer.from('GET')])
  for (let cut = 0; cut < bytes.length - 3; cut += 1) {
    const reader = new FactsReader()
    expect(reader.push(bytes.subarray(0, cut))).toBeUndefined()
    const read = reader.push(bytes.subarray(cut))
    expect(read?.facts).toEqual(FACTS)
    expect(read?.rest.toString()).toBe('GET')
  }
})

it('takes a certificate of 12 KB beside that of the gateway, as a visitor may have one', () => {
  const tls = {
    ...{ version: 'TLSv1.3', cipher: 'TLS_AES_256_GCM_SHA384', server_name: 'a.test', alpn: '' },
    server_certificate: Buffer.alloc(MAX_CERTIFICATE_BYTES).toString('base64'),
    client_certificate: Buffer.alloc(MAX_CERTIFICATE_BYTES).toString('base64'),
  }
  const facts: VisitorFacts = { ...FACTS, entry: { kind: 'http', scheme: 'https', tls } }
  expect(new FactsReader().push(encodeFacts(facts))?.facts).toEqual(facts)
})

it.each<[string, unknown]>([
  ['an address that is none', { ...FACTS, client_ip: 'localhost' }],
  ['another version', { ...FACTS, version: 2 }],
  ['more than it knows', { ...FACTS, admin: true }],
  ['a port beyond', { ...FACTS, client_port: 65_536 }],
  ['an unknown kind', { ...FACTS, entry: { kind: 'udp' } }],
  [
    'more hops than there may be',
    { ...FACTS, entry: { ...FACTS.entry, internal: { ...INTERNAL, hops: MAX_HOPS + 1 } } },
  ],
  [
    'a place that policies cannot name',
    { ...FACTS, entry: { ...FACTS.entry, internal: { ...INTERNAL, url: 'file:///etc/passwd' } } },
  ],
])('takes no facts with %s', (_what, facts) => {
  expect(() => new FactsReader().push(encodeFacts(facts as VisitorFacts))).toThrow()
})

it('takes no facts that are too long, before they have come', () => {
  expect(() => new FactsReader().push(Buffer.from([0xff, 0xff]))).toThrow('too long')
  const entry = { kind: 'tls', server_name: 'x'.repeat(40_000) } as const
  expect(() => encodeFacts({ ...FACTS, entry })).toThrow('too long')
})
