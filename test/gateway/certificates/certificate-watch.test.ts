import { describe, expect, it, onTestFinished } from 'vitest'
import { CertificateWatch } from '../../../src/gateway/certificates/certificate-watch.ts'
import type { CertificateStatus } from '../../../src/gateway/certificates/server-certificate.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'

const POLL_MS = 60_000
const DAY = 86_400_000
const START = Date.UTC(2030, 0, 1)
const WELL: CertificateStatus = { renewsAt: undefined, job: undefined }

/** A gateway with one reserved domain of a bot user, whose certificate stands as the test says. */
async function watched() {
  const stores = openGatewayStores(undefined, { now: START })
  const { clock, database, domains, events, issuer, registrar, log } = stores
  const { id: ownerId } = await issuer.createBotUser({ name: 'press hall' })
  const domain = await registrar.reserve({ domain: 'cam.example', ownerId })
  const state = { status: WELL, ownEndsAt: undefined as number | undefined, isBroken: false }
  const watch = new CertificateWatch({
    database,
    domains,
    statusOf: () => {
      if (state.isBroken) throw new Error('the certificates cannot be read')
      return state.status
    },
    ownEndsAt: () => state.ownEndsAt,
    events,
    clock,
    log,
  })
  watch.start()
  watch.reclaim()
  onTestFinished(() => watch.stop())
  const told = () => events.after(0, 100)
  const look = (times = 1) => clock.advance(times * POLL_MS)
  return { ...stores, state, watch, domain, ownerId, told, look }
}

const failed = (error: string, retriesAt?: number): CertificateStatus => ({
  renewsAt: undefined,
  job: { startedAt: START, error, retriesAt },
})

describe('a watch on certificates', () => {
  it('tells the owner of a domain once that its certificate was not issued, and why', async () => {
    const { state, told, look, domain, ownerId } = await watched()
    state.status = failed('the name leads elsewhere', START + DAY)
    await look(3)
    expect(told()).toMatchObject([
      {
        type: 'certificate.failed',
        ownerId,
        at: START + POLL_MS,
        details: {
          domain: { id: domain.id, name: 'cam.example' },
          ends_at: null,
          text: 'the name leads elsewhere',
          retries_at: '2030-01-02T00:00:00.000Z',
        },
      },
    ])
  })

  it('says nothing of one that is under way, and of no next try where there is none', async () => {
    const { state, told, look } = await watched()
    state.status = { ...WELL, job: { startedAt: START, error: undefined, retriesAt: undefined } }
    await look()
    expect(told()).toEqual([])
    state.status = failed('refused')
    await look()
    expect(told()).toMatchObject([{ details: { text: 'refused', retries_at: null } }])
  })

  it('tells again of what was over meanwhile', async () => {
    const { state, told, look } = await watched()
    for (const status of [failed('first'), WELL, failed('second')]) {
      state.status = status
      await look()
    }
    expect(told().map(({ details }) => details.text)).toEqual(['first', 'second'])
  })

  it('tells of one that was to be renewed when half of the time for that is over', async () => {
    const { state, told, look, ownerId } = await watched()
    const half = START + 2 * POLL_MS
    state.status = { renewsAt: half - 10 * DAY, endsAt: half + 10 * DAY, job: undefined }
    await look(2)
    expect(told()).toEqual([])
    await look(2)
    expect(told()).toMatchObject([
      {
        type: 'certificate.expiring',
        ownerId,
        details: { ends_at: new Date(half + 10 * DAY).toISOString() },
      },
    ])
  })

  it('tells the owner of a domain two weeks before an uploaded certificate ends, in events and log', async () => {
    const { state, told, look, ownerId, captured } = await watched()
    const endsAt = START + 14 * DAY + 2 * POLL_MS
    state.status = { ...WELL, endsAt, isUploaded: true }
    await look()
    expect(told()).toEqual([])
    await look(3)
    const text = 'The uploaded certificate of cam.example expires on 2030-01-15.'
    expect(told()).toMatchObject([
      { type: 'certificate.expiring', ownerId, details: { text: expect.stringContaining(text) } },
    ])
    expect(captured.text()).toContain(text)
  })

  it('tells the owner of the gateway two weeks before a certificate of their own ends, and when it has', async () => {
    const { state, told, look, clock, captured } = await watched()
    state.ownEndsAt = START + 14 * DAY + 2 * POLL_MS
    await look()
    expect(told()).toEqual([])
    await look(2)
    expect(told()).toMatchObject([
      {
        type: 'certificate.expiring',
        ownerId: null,
        details: { domain: null, ends_at: '2030-01-15T00:02:00.000Z' },
      },
    ])
    const warnings = () => captured.lines.filter(({ level }) => level === 'warn')
    const soon = 'The certificate in GATEWAY_TLS_CERT expires on 2030-01-15. Replace it.'
    expect(warnings()).toMatchObject([{ msg: soon }])
    clock.stepWall(14 * DAY)
    await look(2)
    const over = 'The certificate in GATEWAY_TLS_CERT has expired on 2030-01-15. Replace it.'
    expect(warnings()).toMatchObject([{ msg: soon }, { msg: over }])
    expect(told().map(({ details }) => details.text)).toEqual([soon, over])
  })

  it('goes on after a look that failed, and ends when it is told to', async () => {
    const { state, told, look, watch, captured } = await watched()
    state.status = failed('refused')
    state.isBroken = true
    await look()
    expect(captured.text()).toContain('certificates not checked')
    state.isBroken = false
    await look()
    expect(told()).toHaveLength(1)
    watch.stop()
    state.ownEndsAt = START
    await look()
    expect(told()).toHaveLength(1)
  })

  it('of several gateways is one, which tells what another has not told before', async () => {
    const { state, told, look, watch, ...stores } = await watched()
    watch.stop()
    const watches = [0, 1].map(() => {
      const statusOf = () => state.status
      const options = { ...stores, statusOf, ownEndsAt: () => undefined }
      const one = new CertificateWatch(options)
      one.start()
      onTestFinished(() => one.stop())
      return one
    })
    const failing = (failingSince: number): CertificateStatus => ({
      renewsAt: undefined,
      job: { startedAt: START, error: 'closed', retriesAt: START + DAY, failingSince },
    })
    state.status = failing(START)
    await look(2)
    expect(told()).toEqual([])
    watches[0]?.reclaim()
    await look(2)
    watches[0]?.release()
    watches[1]?.reclaim()
    await look(2)
    expect(told()).toMatchObject([{ type: 'certificate.failed', details: { text: 'closed' } }])
    state.status = failing(START + DAY)
    watches[1]?.release()
    watches[0]?.reclaim()
    await look(2)
    expect(told()).toHaveLength(2)
  })
})
