import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { SeenAgent } from '../../../src/cli/doctor/agent-checks.ts'
import { certificateChecks } from '../../../src/cli/doctor/certificate-checks.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

const DAY_MS = 86_400_000
const HOST = 'cam.site.test'
const NEVER = new AbortController().signal

/** Findings about an ingress whose certificate has begun and ends so many days from now. */
async function found(beganDays: number, endsDays: number, hosts = [HOST], aheadDays = 0) {
  const authority = await createAuthority()
  const at = (days: number) => new Date(Date.now() + days * DAY_MS)
  const validity = { notBefore: at(beganDays), notAfter: at(endsDays) }
  const { certPem: cert, keyPem: key } = await authority.issue({ name: HOST, validity })
  const server = createServer({ cert, key }).listen(0, '127.0.0.1')
  server.on('tlsClientError', () => {})
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const tunnels = hosts.map((host) => ({
    ...{ url: `https://${host}`, protocol: 'http', state: 'online' },
  }))
  const seen = { status: { own_endpoint: null }, tunnels } as unknown as SeenAgent
  return certificateChecks(seen, { host: '127.0.0.1', port }, NEVER, aheadDays * DAY_MS)
}

describe('the doctor on certificates of visitors', () => {
  it.each([
    [-60, 30, 'good', /^valid until \d{4}-\d\d-\d\d$/],
    [-60, 15, 'good', /^valid until/],
    [-60, 13, 'bad', /^expires on \d{4}-\d\d-\d\d$/],
    [-60, -1, 'bad', /^has expired on/],
    // Lives for six days, and is renewed after three.
    [-2, 4, 'good', /^valid until/],
    [-4, 2, 'bad', /^expires on/],
  ] as const)('began %d days ago, ends in %d days: %s', async (began, ends, outcome, detail) => {
    const [finding, ...more] = await found(began, ends)
    expect(more).toEqual([])
    expect(finding).toMatchObject({ check: 'certificate cam.site.test', outcome })
    expect(finding?.detail).toMatch(detail)
    if (outcome === 'bad') expect(finding?.remedy).toContain('GATEWAY_TLS_CERT')
  })

  it.each([
    [
      'ahead',
      -60,
      -1,
      300,
      /^has expired on \S+ by the clock of this device alone$/,
      /^Set the wrong clock/,
    ],
    [
      'behind',
      -60,
      30,
      -300,
      /^has expired on \S+ by the clock of the gateway alone$/,
      /^Set the wrong clock/,
    ],
    ['ahead', -600, -310, 300, /^has expired on \S+$/, /GATEWAY_TLS_CERT/],
  ] as const)(
    'points to a clock that is %s, if only one clock says that it has expired',
    async (_, began, ends, ahead, detail, remedy) => {
      const [finding] = await found(began, ends, [HOST], ahead)
      expect(finding).toMatchObject({
        outcome: 'bad',
        detail: expect.stringMatching(detail),
        remedy: expect.stringMatching(remedy),
      })
    },
  )

  it('tells once of a certificate that several tunnels have, and of no host without an answer', async () => {
    expect(await found(-60, 13, ['a.site.test', 'b.site.test'])).toHaveLength(1)
    const tunnels = [{ url: 'https://a.site.test', protocol: 'http', state: 'online' }]
    const seen = { status: { own_endpoint: null }, tunnels } as unknown as SeenAgent
    expect(await certificateChecks(seen, { host: '127.0.0.1', port: 1 }, NEVER)).toEqual([])
  })
})
