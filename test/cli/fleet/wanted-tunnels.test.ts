import { describe, expect, it } from 'vitest'
import { type Fleet, wantedTunnels } from '../../../src/cli/fleet/fleet-file.ts'

const tunnel = (name: string, forwards_to: string, more = {}) => ({
  protocol: 'http',
  domain: `${name}.{name}.{site}`,
  forwards_to,
  ...more,
})

const FLEET: Fleet = {
  path: '/fleet.yaml',
  placeOf: () => '/fleet.yaml:1:1',
  devicesPath: '/fleet-devices.jsonl',
  connect: { address: undefined, caPath: undefined },
  vars: { port: 1 },
  deviceVars: { cam02: { port: 3 } },
  policies: { closed: { policy: 'on_http_request: []', path: 'closed.yaml' } },
  mistakes: [],
  leftOut: [],
  sets: {
    all: { tags: [], vars: {}, tunnels: [tunnel('admin', 'localhost:{port}')] },
    cameras: {
      tags: ['camera', 'berlin'],
      vars: { port: 2 },
      tunnels: [tunnel('view', 'localhost:{port}', { policy: 'closed' })],
    },
  },
}

const device = (name: string, ...tags: string[]) => ({
  name,
  tags,
  agentDomain: `agent.${name}.site.test`,
})

describe('the tunnels of a device', () => {
  it('are those of each set whose tags it has, all of them', () => {
    const of = (...tags: string[]) =>
      wantedTunnels(FLEET, device('cam01', ...tags))?.map(({ domain }) => domain)
    expect(of('camera')).toEqual(['admin.cam01.cam01.site.test'])
    expect(of('camera', 'berlin', 'old')).toEqual([
      'admin.cam01.cam01.site.test',
      'view.cam01.cam01.site.test',
    ])
  })

  it('have the values of the device, else of the set, else of the file', () => {
    const of = (name: string) =>
      wantedTunnels(FLEET, device(name, 'camera', 'berlin'))?.map((it) => it.forwards_to)
    expect(of('cam01')).toEqual(['localhost:1', 'localhost:2'])
    expect(of('cam02')).toEqual(['localhost:3', 'localhost:3'])
  })

  it('have the policy of that name, or the default one', () => {
    const wanted = wantedTunnels(FLEET, device('cam01', 'camera', 'berlin'))
    expect(wanted?.map(({ policy }) => policy)).toEqual([null, 'on_http_request: []'])
  })

  it('share their address where that is asked for', () => {
    const shared = tunnel('shared', '1', { pooling_enabled: true })
    const sets = { all: { tags: [], vars: {}, tunnels: [shared, tunnel('own', '2')] } }
    const wanted = wantedTunnels({ ...FLEET, sets }, device('cam01'))
    expect(wanted?.map((it) => it.pooling_enabled)).toEqual([true, undefined])
    expect(wanted?.map((it) => 'pooling_enabled' in it)).toEqual([true, false])
  })

  it('are nobody’s business where no set is for the device', () => {
    const { cameras } = FLEET.sets
    const fleet = { ...FLEET, sets: cameras ? { cameras } : {} }
    expect(wantedTunnels(fleet, device('door'))).toBeUndefined()
  })

  it('need a value for each variable', () => {
    const fleet = { ...FLEET, vars: {} }
    expect(() => wantedTunnels(fleet, device('cam01'))).toThrow(
      '/sets/all/tunnels/0: {port} has no value for cam01',
    )
  })
})
