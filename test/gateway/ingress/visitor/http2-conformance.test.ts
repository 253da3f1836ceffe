import { beforeEach, describe, expect, it } from 'vitest'
import {
  DATA,
  FrameClient,
  frame,
  GOAWAY,
  HEADERS,
  head,
  RST_STREAM,
  SETTINGS,
  statusOf,
  uint32,
  WINDOW_UPDATE,
} from '../../../helpers/http2-frames.ts'
import { type IngressSite, startIngressSite } from '../../../helpers/ingress-site.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'
import { CONFORMANCE_CASES, type Outcome, PROTOCOL } from './http2-conformance-cases.ts'

let site: IngressSite
let requests: readonly string[]

beforeEach(async () => {
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour')
  requests = service.requests
  site = await startIngressSite({ service: service.port })
})

/** The frames that decide; GOAWAY always does. */
function decisive(expected: Outcome): readonly number[] {
  if (expected === 'refused') return [HEADERS, RST_STREAM]
  if (typeof expected !== 'object') return [HEADERS]
  return 'connection' in expected ? [] : [RST_STREAM]
}

/** What came first that decides: a status, or the code of an error. */
async function outcomeOf(client: FrameClient, expected: Outcome): Promise<unknown> {
  if (expected === 'alive') return (await client.isAlive()) ? 'alive' : 'closed'
  const kinds = [GOAWAY, ...decisive(expected)]
  const came = await client.receive(({ type }) => kinds.includes(type))
  if (came === 'closed') return 'closed'
  if (came.type === HEADERS) return statusOf(came.payload)
  return came.payload.readUInt32BE(came.type === GOAWAY ? 4 : 0)
}

describe('RFC 9113', () => {
  it.each(CONFORMANCE_CASES)('$section: $text', async ({ isBare, send, outcome }) => {
    const client = new FrameClient(site)
    if (!isBare) client.begin()
    client.send(...send)
    const got = await outcomeOf(client, outcome)
    if (outcome === 'left-out') {
      expect(got).toBe(200)
      expect(requests.join()).not.toMatch(/\nx(?!-forwarded|-real)/i)
    } else if (outcome === 'refused') expect([400, PROTOCOL]).toContain(got)
    else if (typeof outcome !== 'object') expect(got).toBe(outcome)
    else expect([...Object.values(outcome).flat(), 'closed']).toContain(got)
  })

  it('3.4 the server begins with SETTINGS', async () => {
    const client = new FrameClient(site).begin()
    await client.isAlive()
    expect(client.frames[0]?.type).toBe(SETTINGS)
    expect(
      client.frames.filter(({ type, flags }) => type === SETTINGS && flags === 1),
    ).toHaveLength(1)
  })

  it('5.4.2 a stream that breaks leaves the others', async () => {
    const client = new FrameClient(site).begin()
    client.send(head(1, [['x', '1']]), head(3))
    const answer = await client.receive(({ type, stream }) => type === HEADERS && stream === 3)
    expect(answer).not.toBe('closed')
    expect(client.frames.some(({ type, stream }) => type === RST_STREAM && stream === 1)).toBe(true)
  })

  it('6.9 no more content comes than the windows allow', async () => {
    const client = new FrameClient(site).begin([[4, 1]])
    client.send(head(1))
    const isContent = ({ type }: { readonly type: number }) => type === DATA
    await client.receive(isContent)
    await client.isAlive()
    const contentOf = () => Buffer.concat(client.frames.filter(isContent).map((f) => f.payload))
    expect(contentOf().toString()).toBe('f')
    client.send(frame(WINDOW_UPDATE, 0, 1, uint32(2)))
    await client.receive((f) => isContent(f) && f.payload.toString() === 'ou')
    // A window may become negative, and has to be made good first (RFC 9113 6.9.2).
    client.send(frame(SETTINGS, 0, 0, [0, 4, 0, 0, 0, 0]), frame(WINDOW_UPDATE, 0, 1, uint32(1)))
    await client.isAlive()
    expect(contentOf().toString()).toBe('fou')
    client.send(frame(WINDOW_UPDATE, 0, 1, uint32(1)))
    await client.receive((f) => isContent(f) && f.payload.toString() === 'r')
  })
})
