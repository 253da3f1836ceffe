import { describe, expect, it } from 'vitest'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { planSet, requireSet } from '../../src/agent/tunnel-set.ts'
import type { StoredTunnel } from '../../src/agent/tunnel-store.ts'
import { specOf } from '../helpers/agent-in-folder.ts'

const NOW = 9_000

function stored(id: string, spec: TunnelSpec): StoredTunnel {
  return { id, spec, createdAt: 1, updatedAt: 2 }
}

function tcp(forwardsTo: string, domain = '', policy: TunnelSpec['policy'] = null): TunnelSpec {
  return { protocol: 'tcp', forwardsTo, domain, policy }
}

/** `create a.site.test`, `keep a.site.test as tun_1`, … */
function planned(wanted: readonly TunnelSpec[], present: readonly StoredTunnel[]): string[] {
  return planSet(wanted, present, NOW).map(({ action, before, after }) => {
    const domain = (after ?? before)?.spec.domain || 'an address to come'
    return before ? `${action} ${domain} as ${before.id}` : `${action} ${domain}`
  })
}

describe('the plan of a whole set', () => {
  it('creates, replaces, keeps and deletes, in the order of the list', () => {
    const present = ['a', 'b', 'c'].map((name, at) => stored(`tun_${at}`, specOf(name)))
    expect(planned([specOf('d'), specOf('b', 'localhost:2'), specOf('a')], present)).toEqual([
      'create d.site.test',
      'replace b.site.test as tun_1',
      'keep a.site.test as tun_0',
      'delete c.site.test as tun_2',
    ])
  })

  it('keeps id and time of creation of what it replaces, and all of what it keeps', () => {
    const present = [stored('tun_0', specOf('a')), stored('tun_1', specOf('b'))]
    const [replaced, kept] = planSet([specOf('a', 'localhost:2'), specOf('b')], present, NOW)
    expect(replaced?.after).toEqual({
      ...present[0],
      spec: specOf('a', 'localhost:2'),
      updatedAt: NOW,
    })
    expect(kept?.after).toBe(present[1])
  })

  it('deletes everything for an empty list, oldest first', () => {
    const present = [stored('tun_0', specOf('b')), stored('tun_1', specOf('a'))]
    expect(planned([], present)).toEqual([
      'delete b.site.test as tun_0',
      'delete a.site.test as tun_1',
    ])
  })

  it('gives a tcp tunnel without an address the one that it has', () => {
    const given = stored('tun_0', tcp('localhost:22', 'gw.test:20001'))
    const coming = stored('tun_1', tcp('localhost:23'))
    const wanted = [tcp('localhost:23'), tcp('localhost:22')]
    expect(planned(wanted, [given, coming])).toEqual([
      'keep an address to come as tun_1',
      'keep gw.test:20001 as tun_0',
    ])
  })

  it('takes for it what is the same before what only leads there, and nothing twice', () => {
    const policy = { on_tcp_connect: [] }
    const present = [
      stored('tun_0', tcp('localhost:22', 'gw.test:20001')),
      stored('tun_1', tcp('localhost:22', 'gw.test:20002', policy)),
    ]
    const wanted = [
      tcp('localhost:22', '', policy),
      tcp('localhost:22', '', { on_tcp_connect: [{}] }),
      tcp('localhost:22'),
    ]
    expect(planned(wanted, present)).toEqual([
      'keep gw.test:20002 as tun_1',
      'create an address to come',
      'keep gw.test:20001 as tun_0',
    ])
  })

  it('gives an http tunnel without a domain the one that it has, and none of another protocol', () => {
    const present = [
      stored('tun_0', tcp('localhost:1', 'gw.test:20001')),
      stored('tun_1', specOf('amber', 'localhost:1')),
      stored('tun_2', { ...specOf('', 'localhost:2'), domain: '' }),
    ]
    const nameless = (forwardsTo: string) => ({ ...specOf('', forwardsTo), domain: '' })
    expect(planned([nameless('localhost:1')], present)).toEqual([
      'keep amber.site.test as tun_1',
      'delete gw.test:20001 as tun_0',
      'delete an address to come as tun_2',
    ])
    expect(planned([nameless('localhost:2'), nameless('localhost:2')], present)).toEqual([
      'keep an address to come as tun_2',
      'create an address to come',
      'delete gw.test:20001 as tun_0',
      'delete amber.site.test as tun_1',
    ])
  })

  it('leaves an address to who names it', () => {
    const present = [stored('tun_0', tcp('localhost:22', 'gw.test:20001'))]
    const wanted = [tcp('localhost:22'), tcp('localhost:22', 'gw.test:20001')]
    expect(planned(wanted, present)).toEqual([
      'create an address to come',
      'keep gw.test:20001 as tun_0',
    ])
  })
})

describe('a list that no device can have', () => {
  const limits = { ownDomain: 'own.site.test', maxTunnels: 3 }
  const refusal = (wanted: readonly TunnelSpec[]) => {
    try {
      return requireSet(wanted, limits)
    } catch (error) {
      return error
    }
  }

  it('names a domain twice', () => {
    const wanted = [specOf('a'), specOf('b'), specOf('a', 'localhost:2')]
    expect(refusal(wanted)).toMatchObject({
      code: 'invalid-request',
      errors: [{ pointer: '/2/domain', detail: 'a.site.test is also used at /0' }],
    })
    expect(refusal([tcp('localhost:1'), tcp('localhost:1')])).toBeUndefined()
  })

  it("has the agent's own domain", () => {
    expect(refusal([specOf('a'), specOf('own')])).toMatchObject({
      code: 'domain-taken',
      errors: [{ pointer: '/1/domain' }],
    })
  })

  it('has more tunnels than the device may hold', () => {
    expect(refusal(['a', 'b', 'c'].map((name) => specOf(name)))).toBeUndefined()
    const wanted = ['a', 'b', 'c', 'd'].map((name) => specOf(name))
    expect(refusal(wanted)).toMatchObject({ code: 'too-many-tunnels' })
  })
})
