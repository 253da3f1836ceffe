import { describe, expect, it } from 'vitest'
import {
  type CredentialLimits,
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
  type SessionWatch,
  type TableEntry,
} from '../../../src/gateway/agents/session-table.ts'
import type { AgentIdentity } from '../../../src/gateway/endpoints/endpoint.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { serviceCode } from '../../helpers/service-code.ts'

class Entry implements TableEntry {
  readonly #table: SessionTable
  readonly id: string
  readonly clientId: string
  readonly identity: AgentIdentity
  readonly startedAt = 0
  readonly latencyMs = undefined
  readonly ends: string[] = []
  endpointCount = 0
  rechecks = 0

  constructor(
    table: SessionTable,
    id: string,
    who: Pick<AgentIdentity, 'credentialId' | 'deviceId'> & Partial<AgentIdentity>,
    clientId: string,
  ) {
    this.#table = table
    this.id = id
    this.clientId = clientId
    this.identity = {
      instance: undefined,
      tokenHash: '',
      ...who,
      ownerId: null,
      presentedClientId: undefined,
      agentVersion: '1.7.0',
      os: 'linux',
      arch: 'arm64',
      hostname: '',
      metadata: '',
      remoteAddress: '192.0.2.1:1',
      unsupported: { restart: '', stop: '', update: '' },
    }
  }

  endpoints() {
    return []
  }
  refusedEndpoints() {
    return []
  }
  readonly duplicate = undefined
  async command() {}
  async answers() {
    return true
  }
  leaveTo() {}
  noteDuplicate() {
    return false
  }
  giveWay() {}
  retire() {}
  stopTunnel() {}

  end(reason: string) {
    this.ends.push(reason)
    this.#table.remove(this)
  }

  recheck() {
    this.rechecks += 1
    this.#table.remove(this)
  }
}

function openTable(limits: Partial<CredentialLimits> = {}, watch?: SessionWatch) {
  const table = new SessionTable({
    ...(watch && { watch }),
    limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...limits },
    clock: new ManualClock(),
  })
  let count = 0
  const session = (credentialId = 'cr_a', deviceId?: string, clientId?: string) => {
    count += 1
    return new Entry(
      table,
      `ts_${count}`,
      { credentialId, deviceId },
      clientId ?? `client_${count}`,
    )
  }
  const added = (...args: Parameters<typeof session>) => {
    const entry = session(...args)
    table.add(entry)
    return entry
  }
  return { table, session, added }
}

const NAME = { protocol: 'https', host: 'a.example', ownerId: null } as const

describe('SessionTable', () => {
  it('finds a session by its id until that is removed, twice or not', () => {
    const { table, added } = openTable()
    const [a, b] = [added(), added()]
    expect([table.size, table.find(a.id), [...table.all()]]).toEqual([2, a, [a, b]])
    table.remove(a)
    table.remove(a)
    expect([table.size, table.find(a.id), [...table.all()]]).toEqual([1, undefined, [b]])
  })

  it('counts the connections of a process as one, up to a bound', () => {
    const { table } = openTable({ sessions: 2 })
    let count = 0
    const add = (deviceId: string, instance: string) => {
      count += 1
      const who = { credentialId: 'cr_a', deviceId, instance }
      table.add(new Entry(table, `ts_${count}`, who, `client_${count}`))
    }
    for (let lane = 0; lane < 40; lane += 1) add('dev_1', 'p')
    add('dev_2', 'q')
    expect(serviceCode(() => add('dev_3', 'r'))).toBe(108)
    expect(serviceCode(() => add('dev_1', 'p'))).toBe(349)
    expect([table.size, table.agentCount]).toEqual([41, 2])
  })

  it('keeps nothing of a session that could not be told of', () => {
    const told: string[] = []
    let isBroken = true
    const { table, session } = openTable(
      { sessions: 1 },
      {
        came: ({ id }) => {
          if (isBroken) throw new Error('it cannot be written down')
          told.push(`came ${id}`)
        },
        went: ({ id }) => told.push(`went ${id}`),
      },
    )
    const lost = session('cr_a', 'd')
    expect(() => table.add(lost)).toThrow('it cannot be written down')
    expect([table.size, table.find(lost.id)]).toEqual([0, undefined])
    isBroken = false
    const next = session('cr_a', 'e')
    table.add(next)
    table.remove(lost)
    table.remove(next)
    expect(told).toEqual([`came ${next.id}`, `went ${next.id}`])
  })

  it.each([
    ['the same device', 'd', 'd', undefined],
    ['the same client', undefined, undefined, 'c'],
    ['the same client of another device', 'd', 'e', 'c'],
  ])('lets %s replace its ghost', (_, before, after, client) => {
    const { table, added } = openTable()
    const ghost = added('cr_a', before, client)
    const session = added('cr_a', after, client)
    expect(ghost.ends).toEqual(['the device connected again'])
    expect([...table.all()]).toEqual([session])
  })

  it.each([
    ['devices that do not say who they are', 'cr_a', undefined, undefined],
    ['another device', 'cr_a', 'd', 'e'],
    ['one that does not say and one that does', 'cr_a', undefined, 'd'],
    ['the same device with another credential', 'cr_b', 'd', 'd'],
  ])('leaves %s alone', (_, credential, before, after) => {
    const { table, added } = openTable()
    const first = added('cr_a', before)
    added(credential, after)
    expect(first.ends).toEqual([])
    expect(table.size).toBe(2)
  })

  it('counts a ghost neither as a session nor for good', () => {
    const { table, session, added } = openTable({ sessions: 2 })
    added('cr_a', 'd')
    added('cr_a', 'e')
    added('cr_a', 'e')
    expect(serviceCode(() => table.add(session('cr_a', 'f')))).toBe(108)
    expect(serviceCode(() => table.add(session('cr_b', 'f')))).toBeUndefined()
    expect(table.size).toBe(3)
  })

  it('rechecks the sessions of one credential, all of them though each leaves', () => {
    const { table, added } = openTable()
    const own = [added(), added(), added()]
    const other = added('cr_b')
    table.recheck('cr_a')
    table.recheck('cr_none')
    expect(own.map(({ rechecks }) => rechecks)).toEqual([1, 1, 1])
    expect(other.rechecks).toBe(0)
    expect([...table.all()]).toEqual([other])
  })

  it('counts the endpoints of all sessions of a credential', () => {
    const { table, added, session } = openTable({ endpoints: 3 })
    const [a, b, other] = [added(), added(), added('cr_b')]
    a.endpointCount = 1
    b.endpointCount = 1
    other.endpointCount = 2
    expect(serviceCode(() => table.checkRoom(a, NAME))).toBeUndefined()
    b.endpointCount = 2
    expect(serviceCode(() => table.checkRoom(a, NAME))).toBe(18021)
    expect(serviceCode(() => table.checkRoom(other, NAME))).toBeUndefined()
    expect(serviceCode(() => table.checkRoom(session('cr_none'), NAME))).toBeUndefined()
  })

  it('counts what a credential has at other gateways, and looks only when that may matter', () => {
    const { table, added, session } = openTable({ endpoints: 5, sessions: 3 })
    const asked: string[] = []
    const elsewhere = { most: 1, sessions: 1, endpoints: 3 }
    table.countElsewhere({
      mostOf: () => elsewhere.most,
      sessionsOf: (credentialId, { clientId }) => {
        asked.push(credentialId, clientId)
        return elsewhere.sessions
      },
      endpointsOf: (credentialId, { host }) => {
        asked.push(credentialId, host)
        return elsewhere.endpoints
      },
    })
    const a = added()
    a.endpointCount = 2
    table.checkRoom(a, NAME)
    expect(asked).toEqual([])
    elsewhere.most = 3
    expect(serviceCode(() => table.checkRoom(a, NAME))).toBe(18021)
    expect(asked).toEqual(['cr_a', NAME.host])
    elsewhere.endpoints = 2
    expect(serviceCode(() => table.checkRoom(a, NAME))).toBeUndefined()
    const late = added()
    expect(asked.slice(-2)).toEqual(['cr_a', late.clientId])
    expect(serviceCode(() => table.add(session()))).toBe(108)
    elsewhere.sessions = 0
    expect(serviceCode(() => table.add(session()))).toBeUndefined()
  })

  it('counts binds and sessions of a minute per credential', () => {
    const { table, session, added } = openTable({ bindsPerMinute: 1, sessionsPerMinute: 1 })
    added()
    expect(serviceCode(() => table.add(session()))).toBe(349)
    expect(serviceCode(() => table.add(session('cr_b')))).toBeUndefined()
    table.countBind(session())
    expect(serviceCode(() => table.countBind(session()))).toBe(351)
    expect(serviceCode(() => table.countBind(session('cr_b')))).toBeUndefined()
  })
})
