import { beforeAll, describe, expect, it } from 'vitest'
import {
  ClientHelloReader,
  type HelloVerdict,
  MAX_HELLO_BYTES,
} from '../../../../src/gateway/ingress/visitor/client-hello.ts'
import {
  applications,
  capturedHello,
  extension,
  handshakeRecord,
  helloMessage,
  inRecords,
  serverNames,
} from '../../../helpers/client-hello.ts'

const WANTED: HelloVerdict = { kind: 'hello', serverName: 'cam.site.test', protocols: [] }
const NOBODY: HelloVerdict = { kind: 'hello', serverName: undefined, protocols: [] }
let hello: Buffer

beforeAll(async () => {
  hello = await capturedHello('CAM.site.test')
})

/** The verdict on pieces, and after which of them it came. */
function read(...pieces: Buffer[]): { verdict: HelloVerdict; after: number } {
  const reader = new ClientHelloReader()
  let verdict: HelloVerdict = { kind: 'partial' }
  let after = 0
  for (const piece of pieces) {
    after += 1
    verdict = reader.read(piece)
    if (verdict.kind !== 'partial') break
  }
  return { verdict, after }
}

const bytesOf = (bytes: Buffer) => Array.from(bytes, (byte) => Buffer.from([byte]))
const padding = (size: number) => extension(21, Buffer.alloc(size))

describe('the first message of a client', () => {
  it('says whom it wants, in lower case', () => {
    expect(read(hello).verdict).toEqual(WANTED)
  })

  it('may say nobody', async () => {
    expect(read(await capturedHello('')).verdict).toEqual(NOBODY)
    const bare = handshakeRecord(helloMessage())
    expect(read(bare).verdict).toEqual(NOBODY)
  })

  it('names its application protocols, behind the name or before it', () => {
    const protocols = ['acme-tls/1', 'h2']
    for (const names of [
      [applications(protocols), serverNames([0, 'a.test'])],
      [serverNames([0, 'a.test']), applications(protocols)],
    ]) {
      const { verdict } = read(handshakeRecord(helloMessage(...names)))
      expect(verdict).toEqual({ kind: 'hello', serverName: 'a.test', protocols })
    }
  })

  it('may come in pieces of any size', () => {
    expect(read(...bytesOf(hello))).toEqual({ verdict: WANTED, after: hello.length })
    for (let cut = 1; cut < hello.length; cut += 1) {
      expect(read(hello.subarray(0, cut), hello.subarray(cut))).toEqual({
        verdict: WANTED,
        after: 2,
      })
    }
  })

  it.each([1, 2, 3, 4, 5, 100])('may come in records of %i bytes', (size) => {
    const records = inRecords(hello, size)
    expect(read(records).verdict).toEqual(WANTED)
    expect(read(...bytesOf(records))).toEqual({ verdict: WANTED, after: records.length })
  })

  it('is kept as it came, with what came behind it', () => {
    const reader = new ClientHelloReader()
    const more = Buffer.concat([hello, Buffer.from('early data')])
    reader.read(more.subarray(0, 7))
    reader.read(more.subarray(7))
    expect(reader.length).toBe(more.length)
    expect(reader.takeBytes().equals(more)).toBe(true)
  })

  it('names a host, whatever else it names before', () => {
    const names = serverNames([7, 'other'], [0, 'a.test'], [0, 'b.test'])
    const message = helloMessage(padding(9), names)
    expect(read(handshakeRecord(message)).verdict).toMatchObject({
      kind: 'hello',
      serverName: 'a.test',
    })
    const long = helloMessage(serverNames([0, 'a'.repeat(256)]))
    expect(read(handshakeRecord(long)).verdict).toEqual(NOBODY)
  })
})

describe('a first message that is too large', () => {
  const tooLarge = { kind: 'too-large' }

  it('is one with more than 16 kB, as soon as it says so', () => {
    const fitting = helloMessage(padding(MAX_HELLO_BYTES - 100), serverNames([0, 'a.test']))
    expect(fitting.length).toBeLessThan(MAX_HELLO_BYTES)
    const records = Buffer.concat([handshakeRecord(fitting), Buffer.from('and more')])
    expect(read(records).verdict).toMatchObject({ kind: 'hello', serverName: 'a.test' })
    const message = helloMessage(padding(MAX_HELLO_BYTES))
    expect(read(handshakeRecord(message.subarray(0, 4))).verdict).toEqual(tooLarge)
  })

  it('is one whose records take as much without an end', () => {
    const message = helloMessage(padding(8_000))
    const records = inRecords(handshakeRecord(message), 1)
    const { verdict, after } = read(...bytesOf(records))
    expect([verdict, after]).toEqual([tooLarge, MAX_HELLO_BYTES])
  })
})

describe('what is no first message of TLS', () => {
  it.each([
    ['HTTP', Buffer.from('G')],
    ['an alert', Buffer.from([21, 3, 1, 0, 2, 1, 0])],
    ['a record without anything', Buffer.from([22, 3, 1, 0, 0])],
    ['another message of a handshake', handshakeRecord(Buffer.from([2, 0, 0, 1, 0]))],
    ['a hello that ends early', handshakeRecord(Buffer.from([1, 0, 0, 3, 3, 3, 0]))],
    [
      'other records between',
      Buffer.concat([handshakeRecord(Buffer.from([1])), Buffer.from([23])]),
    ],
  ])('is left to who speaks TLS: %s', (_what, bytes) => {
    expect(read(bytes).verdict).toEqual({ kind: 'unreadable' })
    expect(read(...bytesOf(bytes)).verdict).toEqual({ kind: 'unreadable' })
  })

  it('never throws, whatever is wrong with it', () => {
    const kinds = new Set<string>()
    for (let at = 0; at < hello.length; at += 1) {
      for (const value of [0, 1, 127, 255]) {
        const broken = Buffer.from(hello)
        broken[at] = value
        kinds.add(read(broken).verdict.kind)
      }
    }
    expect([...kinds].sort()).toEqual(['hello', 'partial', 'too-large', 'unreadable'])
  })
})
