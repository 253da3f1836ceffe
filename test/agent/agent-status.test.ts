import { describe, expect, it } from 'vitest'
import { type AgentFacts, concludeStatus, type LinkStatus } from '../../src/agent/agent-status.ts'
import { shownStatus } from '../../src/agent/shown-status.ts'
import type { Tunnel, TunnelStatus } from '../../src/agent/tunnel.ts'
import type { SupervisedStatus } from '../../src/agent/tunnel-supervisor.ts'
import { DEFAULT_UPSTREAM } from '../../src/agent/upstreams/upstream-options.ts'

const NOW = Date.UTC(2030, 0, 1)
const UP: LinkStatus = { state: 'up', since: NOW - 60_000, forMs: 60_000 }
const DOWN: LinkStatus = {
  state: 'waiting',
  since: NOW - 180_000,
  forMs: 180_000,
  reason: 'dns',
  remedy: 'Check the name.',
  lastError: 'no such name',
  nextRetryAt: NOW + 1,
}
const SUSPECT: LinkStatus = { ...DOWN, state: 'suspect', reason: 'network' }

let made = 0
function tunnel(change: Partial<TunnelStatus> = {}): Tunnel {
  made += 1
  return {
    id: `tun_${made}`,
    spec: {
      protocol: 'http',
      forwardsTo: `localhost:${made}`,
      domain: `t${made}.test`,
      policy: null,
    },
    url: `https://t${made}.test`,
    createdAt: 0,
    updatedAt: 0,
    status: {
      state: 'online',
      since: NOW,
      reachable: 'unknown',
      upstream: 'up',
      upstreamSettings: DEFAULT_UPSTREAM,
      ...change,
    },
  }
}

function conclude(change: Partial<AgentFacts> = {}) {
  made = 0
  return concludeStatus({
    startedAt: 0,
    deviceId: 'dev_1',
    link: UP,
    tunnels: [],
    damagedRows: [],
    ownEndpoint: undefined,
    defaultPolicy: { source: 'file', loadedAt: 0 },
    resources: { name: 'enough' },
    versions: { agent: '1', node: '20', sdk: '1' },
    clock: { now: NOW, skewMs: undefined },
    ...change,
  })
}

it('says that the certificate of the gateway has expired, and not that the address works elsewhere', () => {
  const ownEndpoint = own({
    ...{ reason: 'tls', lastError: "the gateway's certificate has expired", remedy: 'Renew it.' },
    reachable: 'no',
  })
  expect(conclude({ ownEndpoint, tunnels: [tunnel()] })).toMatchObject({
    verdict: "the tunnel is online; the gateway's certificate has expired. Renew it.",
    healthy: false,
    unverified: [],
  })
})

it('says that the authtoken in use is not that of the file', () => {
  const authtokenProblem = 'cannot use the authtoken file'
  expect(conclude({ authtokenProblem })).toMatchObject({
    verdict: 'no tunnels; cannot use the authtoken file',
    healthy: false,
  })
})

it('says that the link is slow, with its figures, and calls nobody unhealthy for that', () => {
  const link = { ...UP, latencyMs: 1_400 }
  expect(conclude({ link, tunnels: [tunnel(), tunnel({ state: 'opening' })] }).verdict).toBe(
    '1 of 2 tunnels online; slow link: round trip 1.4 s, 1 tunnel still opening',
  )
  expect(conclude({ link: { ...link, latencyMs: 4_000 }, tunnels: [tunnel()] })).toMatchObject({
    verdict: 'the tunnel is online; slow link: round trip 4.0 s',
    healthy: true,
  })
  expect(conclude({ link: { ...link, latencyMs: 999 }, tunnels: [tunnel()] }).verdict).toBe(
    'the tunnel is online',
  )
})

const own = (change: object) => ({
  domain: 'agent.test',
  url: 'https://agent.test',
  state: 'online' as const,
  since: 0,
  reachable: 'yes' as const,
  ...change,
})
const refused = (reason: 'acl' | 'policy') =>
  tunnel({ state: 'refused', reason, remedy: 'Change it.' })

describe('concludeStatus', () => {
  it.each([
    ['no tunnels', {}],
    ['the tunnel is online', { tunnels: [tunnel()] }],
    ['all 2 tunnels online', { tunnels: [tunnel(), tunnel()] }],
    ['all 2 tunnels online', { tunnels: [tunnel(), tunnel()], ownEndpoint: own({}) }],
  ])('is healthy: %s', (verdict, facts) => {
    expect(conclude(facts)).toMatchObject({ verdict, healthy: true, ready: true, notReady: [] })
  })

  it('is saturated, not offline, while the device is busy', () => {
    const ownEndpoint = own({ reason: 'saturated', remedy: 'Wait.', reachable: 'no' })
    expect(conclude({ tunnels: [tunnel()], ownEndpoint })).toMatchObject({
      verdict: 'the tunnel is online; the device is saturated. Wait.',
      healthy: false,
      ready: true,
    })
  })

  it.each<[string, Partial<LinkStatus>]>([
    [
      'session renewal failed, previous session still in use: auth. Put a valid one there.',
      { renewal: { reason: 'auth', remedy: 'Put a valid one there.', lastError: 'refused' } },
    ],
    [
      'another device at 10.0.0.3 has the same identity: run device-agent identity reset on the copy',
      { duplicate: { ip: '10.0.0.3', seenAt: NOW } },
    ],
    [
      'no standby session at b.test:1: network. Check it.',
      {
        standby: {
          state: 'waiting',
          serverAddr: 'b.test:1',
          reason: 'network',
          remedy: 'Check it.',
        },
      },
    ],
  ])('is online, and tells what is wrong beside that: %s', (trouble, change) => {
    expect(conclude({ tunnels: [tunnel()], link: { ...UP, ...change } })).toMatchObject({
      verdict: `the tunnel is online; ${trouble}`,
      healthy: false,
      ready: true,
    })
  })

  it('is healthy while the second session is being connected', () => {
    const standby = { state: 'connecting', serverAddr: 'b.test:1' } as const
    expect(conclude({ tunnels: [tunnel()], link: { ...UP, standby } }).healthy).toBe(true)
  })

  it('says that it is a duplicate, not that the service cannot be reached', () => {
    const link = { ...DOWN, state: 'duplicate', reason: 'duplicate', remedy: 'Reset it.' } as const
    expect(conclude({ link }).verdict).toBe(
      'no tunnels; another device has the same identity for 3 min: duplicate. Reset it.',
    )
  })

  it('says what is online as before, because what is wanted now cannot be opened', () => {
    const kept = { reason: 'policy', remedy: 'Correct it.' } as const
    expect(conclude({ tunnels: [tunnel(kept)], ownEndpoint: own(kept) })).toMatchObject({
      verdict:
        'the tunnel is online; t1.test: update failed, previous version online: policy. Correct it; agent API update failed, previous version online at agent.test: policy. Correct it.',
      healthy: false,
      ready: true,
    })
  })

  it('names the trouble of the link, since when, and what to do', () => {
    const tunnels = [tunnel({ state: 'waiting' }), tunnel({ state: 'waiting' })]
    expect(conclude({ link: DOWN, tunnels })).toMatchObject({
      verdict: '0 of 2 tunnels online; service unreachable for 3 min: dns. Check the name.',
      healthy: false,
      ready: false,
      notReady: ['There is no link to the service.'],
      tunnels: { waiting: 2, online: 0, total: 2 },
    })
    expect(conclude({ link: { ...DOWN, state: 'refused', reason: 'auth' } }).verdict).toBe(
      'no tunnels; service refuses this device for 3 min: auth. Check the name.',
    )
    expect(conclude({ link: { ...DOWN, state: 'parked', reason: 'auth' } })).toMatchObject({
      verdict: 'no tunnels; stopped by the service for 3 min: auth. Check the name.',
      ready: false,
    })
    expect(conclude({ link: SUSPECT })).toMatchObject({
      verdict: 'no tunnels; public address does not answer for 3 min: network. Check the name.',
      ready: false,
    })
  })

  it('gathers tunnels with the same trouble', () => {
    const tunnels = [
      tunnel(),
      refused('acl'),
      refused('policy'),
      ...Array.from({ length: 4 }, () => refused('acl')),
    ]
    const { verdict, healthy, ready } = concludeStatus({ ...conclude(), tunnels })
    expect(verdict).toMatch(
      /^1 of 7 tunnels online; t\d+\.test, t\d+\.test, t\d+\.test and 2 more: acl\. Change it; t\d+\.test: policy\. Change it\.$/,
    )
    // A refused tunnel waits for a person; the agent itself has done what it can.
    expect([healthy, ready]).toEqual([false, true])
  })

  it('is online, but not healthy, while a local service does not answer', () => {
    const tunnels = [tunnel({ upstream: 'down' }), tunnel({ upstream: 'unknown' })]
    const { verdict, healthy, ready } = conclude({ tunnels })
    expect(verdict).toMatch(
      /^all 2 tunnels online; no answer from localhost:\d+: start the upstream$/,
    )
    expect([healthy, ready]).toEqual([false, true])
  })

  it('is not ready while tunnels are being opened or the API is not online', () => {
    expect(conclude({ tunnels: [tunnel({ state: 'opening' })] }).notReady).toEqual([
      '1 tunnel still opening.',
    ])
    expect(conclude({ ownEndpoint: own({ state: 'waiting' }) }).notReady).toEqual([
      'The agent API is not online.',
    ])
  })

  it.each(['waiting', 'refused'])('says why the API is %s and what to do', (state) => {
    const ownEndpoint = own({ state, reason: 'acl', remedy: 'Widen the ACL.' })
    expect(conclude({ ownEndpoint })).toMatchObject({
      verdict: 'no tunnels; agent API not online at agent.test: acl. Widen the ACL.',
      healthy: false,
    })
    // Nothing is online without a link: that is the news then.
    expect(conclude({ ownEndpoint, link: DOWN }).verdict).not.toContain('agent API')
  })

  it('does not call a service unreachable that nobody tried to reach', () => {
    expect(conclude({ link: { state: 'waiting', since: NOW, forMs: 0 } }).verdict).toBe(
      'no tunnels; connecting to the service for 0 s',
    )
    expect(conclude({ link: { ...DOWN, reason: 'auth', remedy: 'Put one there.' } }).verdict).toBe(
      'no tunnels; not connected for 3 min: auth. Put one there.',
    )
  })

  it('tells of damaged rows and of a bad default policy', () => {
    const { verdict, healthy } = conclude({
      damagedRows: [{ id: 'tun_x', domain: 'x.test', problem: 'the checksum is wrong' }],
      defaultPolicy: { source: 'kept', loadedAt: 0, problem: 'The default policy is bad.' },
    })
    expect(verdict).toBe(
      'no tunnels; damaged in the database: x.test. Create these tunnels again; The default policy is bad.',
    )
    expect(healthy).toBe(false)
  })
})

it.each([
  [59_000, 'no tunnels'],
  [
    400_000,
    'no tunnels; the device clock is 7 min ahead of the service: set the clock that is wrong',
  ],
  [
    -86_400_000,
    'no tunnels; the device clock is 24 h behind the service: set the clock that is wrong',
  ],
])('tells of a clock that is %i ms off', (skewMs, verdict) => {
  expect(conclude({ clock: { now: NOW, skewMs } }).verdict).toBe(verdict)
})

it('says what services do to visitors, and what the process has none left of', () => {
  const problem = { reason: 'resources', detail: 'd', remedy: 'Do it.', permanent: false } as const
  expect(
    conclude({
      tunnels: [tunnel({ upstream: 'slow' }), tunnel({ upstream: 'garbage' }), tunnel()],
      resources: { name: 'descriptors', problem },
    }),
  ).toMatchObject({
    verdict:
      'all 3 tunnels online; out of descriptors: d. Do it; ' +
      'requests to localhost:1 time out: check whether the upstream hangs; ' +
      'no valid HTTP from localhost:2: check which service listens there',
    healthy: false,
    ready: false,
    notReady: ['The agent is out of descriptors.'],
  })
})

describe('an address that only this device does not reach', () => {
  const unverified = own({
    reachable: 'unverified',
    reason: 'network',
    remedy: 'Try it from elsewhere.',
  })
  const sentence =
    'unverified: this device cannot reach agent.test itself (network). Try it from elsewhere.'

  it('is said, and is no trouble', () => {
    const status = conclude({ tunnels: [tunnel()], ownEndpoint: unverified })
    expect(status).toMatchObject({
      verdict: `the tunnel is online; ${sentence}`,
      healthy: true,
      ready: true,
      unverified: [sentence],
    })
  })

  it('is not said while there is no link to reach it by', () => {
    expect(conclude({ link: DOWN, ownEndpoint: unverified }).unverified).toEqual([])
    const waiting = { ...unverified, state: 'waiting' as const }
    expect(conclude({ ownEndpoint: waiting }).unverified).toEqual([])
  })
})

describe('shownStatus', () => {
  const supervised = (change: Partial<SupervisedStatus>): SupervisedStatus => ({
    state: 'online',
    since: NOW,
    problem: undefined,
    nextRetryAt: undefined,
    ...change,
  })

  it('is the own status on a link that is up', () => {
    expect(shownStatus(supervised({}), UP, 'up')).toEqual({
      state: 'online',
      since: NOW,
      upstream: 'up',
    })
    const problem = {
      reason: 'acl',
      detail: 'not yours',
      remedy: 'Ask.',
      permanent: true,
      serviceCode: 'ERR_NGROK_316',
    } as const
    expect(
      shownStatus(supervised({ state: 'refused', problem, nextRetryAt: 5 }), UP, 'down'),
    ).toEqual({
      state: 'refused',
      since: NOW,
      upstream: 'down',
      nextRetryAt: 5,
      reason: 'acl',
      serviceCode: 'ERR_NGROK_316',
      remedy: 'Ask.',
      lastError: 'not yours',
    })
  })

  it.each([DOWN, SUSPECT])('never claims online on a link that is $state', (link) => {
    expect(shownStatus(supervised({ since: 0 }), link, 'up')).toEqual({
      state: 'waiting',
      since: link.since,
      upstream: 'up',
      reason: link.reason,
      remedy: link.remedy,
      lastError: link.lastError,
      serviceCode: undefined,
      nextRetryAt: link.nextRetryAt,
    })
  })

  it('has the reason of the link while it waits for it', () => {
    const waiting = supervised({ state: 'waiting' })
    expect(shownStatus(waiting, DOWN, 'unknown')).toMatchObject({ state: 'waiting', reason: 'dns' })
  })

  it('is opening on a suspect link, and closing whatever the link does', () => {
    expect(shownStatus(supervised({ state: 'opening' }), SUSPECT, 'up').state).toBe('opening')
    expect(shownStatus(supervised({ state: 'opening' }), DOWN, 'up').state).toBe('waiting')
    expect(shownStatus(supervised({ state: 'closing' }), DOWN, 'up').state).toBe('closing')
  })
})
