import { describe, expect, it } from 'vitest'
import { Binder } from '../../../src/gateway/agents/binder.ts'
import { findPredecessor } from '../../../src/gateway/agents/bindings.ts'
import { parseBind } from '../../../src/gateway/agents/control-message.ts'
import {
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
  type TableEntry,
} from '../../../src/gateway/agents/session-table.ts'
import type { DisconnectedName } from '../../../src/gateway/endpoints/disconnected-name.ts'
import { type AgentEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { ofSameAccount, type RouteAccount } from '../../../src/gateway/endpoints/routes.ts'
import type { EndpointProtocol } from '../../../src/gateway/records/endpoint-protocol.ts'
import { ServiceError } from '../../../src/gateway/records/service-error.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { seeded } from '../../helpers/seeded.ts'

const STEPS = 20_000
const SEED = 7
const HOUR_MS = 3_600_000
const HOSTS = [
  ...['site.test', 'cam.site.test', 'x.cam.site.test', 'door.site.test', 'shop.site.test'],
  ...['other.test', 'cam.other.test', 'gw.test', 'x.cname.gw.test', 'a.localhost'],
]
const WILDCARDS = [
  '*.site.test',
  '*.cam.site.test',
  '*.other.test',
  '*.test',
  '*.localhost',
  '*.gw.test',
]
const NAMES = [...HOSTS, ...WILDCARDS]
const RULES = ['*', 'bind:*', ...NAMES.map((name) => `bind:${name}`)]
const PROTOCOLS: readonly EndpointProtocol[] = ['http', 'https', 'tls']
const POLICY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })

type Account = string | null

/** What is true of the names, by other means than the program has: lists, and no shortcuts. */
class Oracle {
  readonly reserved = new Map<string, { owner: Account; id: string }>()
  /** Rules that the gateway's owner has set, by credential. */
  readonly credentials = new Map<string, { owner: Account; rules: string[]; granted: string[] }>()
  /** What was chosen for which account. */
  readonly chosen = new Map<string, Account>()

  ownerOf(host: string): { owner: Account; domain: string } | undefined {
    const covering = [...this.reserved.keys()].filter((domain) => covers(domain, host))
    const domain = covering.sort((a, b) =>
      a === host ? -1 : b === host ? 1 : b.length - a.length,
    )[0]
    return domain === undefined
      ? undefined
      : { owner: this.reserved.get(domain)?.owner ?? null, domain }
  }

  /** Whether an account may have an endpoint on a name. */
  mayHave(account: Account, name: string): boolean {
    const owner = this.ownerOf(name)
    if (!owner) return false
    if (owner.owner === account) return true
    if (owner.owner !== null) return false
    if (this.chosen.get(name) === account) return true
    return [...this.credentials.values()].some(
      (it) =>
        it.owner === account &&
        it.granted.some((rule) =>
          rule.includes('*') && !rule.includes('.') ? true : covers(rule.slice(5), name),
        ),
    )
  }
}

function covers(domain: string, name: string): boolean {
  if (domain === name) return true
  return domain.startsWith('*.') && name.endsWith(domain.slice(1)) && name !== domain.slice(2)
}

describe('names, as accounts reserve, bind, lose and visit them at random', () => {
  it(`are never served by another account in ${STEPS} steps`, async () => {
    const random = seeded(SEED)
    const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
    const stores = openGatewayStores(undefined, {
      ownNames: ['gw.test', '*.cname.gw.test'],
      sharesClock: true,
    })
    const { clock, registry, authority, registrar, issuer, cloudEndpoints, database } = stores
    const sessions = new SessionTable({ limits: DEFAULT_CREDENTIAL_LIMITS, clock })
    const binder = new Binder({ ...stores })
    const oracle = new Oracle()
    const tenants = await Promise.all(
      ['a', 'b', 'c'].map(async (name) => (await issuer.createBotUser({ name })).id),
    )
    const accounts: Account[] = [null, ...tenants]
    const online = new Map<string, { endpoint: AgentEndpoint; session: TableEntry }>()
    const waiting = new Set<DisconnectedName>()
    const seen = {
      served: 0,
      refused: 0,
      waited: 0,
      released: 0,
      bound: 0,
      reserved: 0,
      notReserved: 0,
    }

    /** The device sessions: two devices of each account, made anew with each credential. */
    const newSession = (credentialId: string, ownerId: Account): TableEntry => {
      const device = pick(['one', 'two', undefined])
      const identity = {
        credentialId,
        ownerId,
        deviceId: device,
        instance: device && `${device}-1`,
      }
      const ended = () => {}
      return {
        ...{ id: `ts_${Math.floor(random() * 1e9)}`, clientId: 'x', identity, endpointCount: 0 },
        ...{ end: ended, giveWay: ended, recheck: ended, noteDuplicate: ended, retire: ended },
        answers: async () => true,
      } as unknown as TableEntry
    }

    const visit = (host: string, protocol: EndpointProtocol, before?: RouteAccount): void => {
      const found = ofSameAccount(registry.match(host, protocol), before)
      if (!found) {
        seen.refused += 1
        return
      }
      // It waits on for its own account, for whatever comes next in this step.
      if (before && found.type === 'disconnected') return
      check(host, found)
      if (found.type !== 'disconnected') {
        seen.served += 1
        return
      }
      if (before || waiting.has(found)) return
      const isWaiting = registry.wait(found, {
        network: `10.0.${Math.floor(random() * 256)}.1`,
        bytes: 10,
        onNameChange: () => {
          seen.released += 1
          waiting.delete(found)
          visit(host, protocol, found)
        },
      })
      if (!isWaiting) return
      waiting.add(found)
      seen.waited += 1
    }

    /** Throws when the account of an endpoint has no business with a host. */
    const check = (host: string, { ownerId, host: name }: { ownerId: Account; host: string }) => {
      const owner = oracle.ownerOf(host)
      const text = `${host} of ${owner?.owner} (${owner?.domain}) is answered by ${ownerId} at ${name}`
      expect(owner, text).toBeDefined()
      const isOwn = owner?.owner === ownerId
      // With leave of the gateway's owner, on that name or on the very wildcard that covers it.
      const isGiven = owner?.owner === null && oracle.mayHave(ownerId, name)
      const isNear = name === host || isOwn || owner?.domain === name
      expect((isOwn || isGiven) && isNear, text).toBe(true)
      for (const other of held(host)) expect(other, `${text}, but ${other} has it`).toBe(ownerId)
    }

    /** The accounts that have exactly a host, or had it within the hour. */
    const held = (host: string): Account[] => {
      const ends = [...online.values()].map(({ endpoint }) => endpoint)
      const clouds = [...registry.all()].filter(({ type }) => type === 'cloud')
      const away = [...registry.allDisconnected()].filter(
        (it) => clock.monotonic() < it.forgottenAt,
      )
      return [...ends, ...clouds, ...away].filter((it) => it.host === host).map((it) => it.ownerId)
    }

    /** As the gateway does after each change of what is reserved or allowed. */
    const recheck = () => {
      registry.forgetUnless((name) => authority.mayBind(name))
      for (const [id, { endpoint, session }] of online) {
        const { host, protocol, ownerId, isDrawn } = endpoint
        const drawn = isDrawn ? {} : undefined
        const { credentialId } = session.identity
        if (authority.mayBind({ host, protocol, ownerId, credentialId, drawn })) continue
        registry.remove(endpoint)
        online.delete(id)
      }
    }

    const attempt = async (work: () => Promise<unknown> | unknown): Promise<boolean> => {
      try {
        await work()
        return true
      } catch (error) {
        if (error instanceof ServiceError) return false
        throw error
      }
    }

    const reserve = async () => {
      const domain = pick(NAMES)
      const owner = pick(accounts)
      const isGranting = owner === null || random() < 0.3
      const spelled = random() < 0.2 ? domain.toUpperCase() : domain
      const related = [...oracle.reserved].filter(
        ([name, it]) =>
          it.owner !== owner &&
          (covers(name, domain) ||
            covers(domain, name) ||
            `*.${name}` === domain ||
            `*.${domain}` === name),
      )
      const isDone = await attempt(async () => {
        const { id } = await registrar.reserve({ domain: spelled, ownerId: owner }, { isGranting })
        oracle.reserved.set(domain, { owner, id })
      })
      seen[isDone ? 'reserved' : 'notReserved'] += 1
      if (isDone && !isGranting) expect([domain, owner, related]).toEqual([domain, owner, []])
    }

    const release = async () => {
      const [domain, it] = pick([...oracle.reserved, ['', undefined] as const])
      const reserved = it && stores.domains.get(it.id)
      if (!reserved) return
      if (await attempt(() => registrar.release(reserved))) oracle.reserved.delete(domain)
    }

    const give = async () => {
      const [domain, it] = pick([...oracle.reserved, ['', undefined] as const])
      const reserved = it && stores.domains.get(it.id)
      const owner = pick(accounts)
      if (!reserved) return
      if (await attempt(() => registrar.update(reserved, { ownerId: owner }))) {
        oracle.reserved.set(domain, { ...it, owner })
      }
    }

    /** A tenant sets rules for its own domains; the gateway's owner sets any. */
    const issue = async () => {
      const owner = pick(accounts)
      const isGranting = random() < 0.6
      const all = [pick(RULES), pick(RULES)]
      const own = all.filter((rule) => oracle.ownerOf(rule.slice(5))?.owner === owner)
      const rules = isGranting ? all.slice(0, Math.floor(random() * 3)) : own
      const request = { ownerId: owner, acl: rules }
      const { credential } = await issuer.createCredential(request, () => {}, { isGranting })
      oracle.credentials.set(credential.id, { owner, rules, granted: isGranting ? rules : [] })
      const [oldest] = oracle.credentials.size > 24 ? oracle.credentials.keys() : []
      const old = oldest === undefined ? undefined : stores.credentials.get(oldest)
      if (!old) return
      await issuer.deleteCredential(old)
      oracle.credentials.delete(old.id)
    }

    const bind = async () => {
      const [credentialId, it] = pick([...oracle.credentials, ['', undefined] as const])
      if (!it) return
      const session = newSession(credentialId, it.owner)
      const Proto = pick(PROTOCOLS)
      const Domain = random() < 0.15 ? '' : pick(NAMES)
      const request = parseBind({ Id: '', Proto, ForwardsTo: ':1', Opts: { Domain } })
      await attempt(() => {
        const binding = binder.judge(request, session.identity)
        const before = findPredecessor(binding, session, { registry, sessions })
        expect(before).toBeUndefined()
        const { host, protocol, url, ownerId, isDrawn } = binding
        if (isDrawn) oracle.chosen.set(host, ownerId)
        const id = stores.ids.next('ep')
        const endpoint = {
          ...{ type: 'agent', id, host, protocol, url, ownerId, isDrawn, forwardsTo: ':1' },
          ...{ poolMember: undefined, sessionId: session.id, traffic: new EndpointTraffic() },
        } as unknown as AgentEndpoint
        registry.add(endpoint, { isShared: false })
        online.set(id, { endpoint, session })
        seen.bound += 1
        expect(oracle.mayHave(ownerId, host), `${ownerId} has bound ${host}`).toBe(true)
      })
    }

    const lose = () => {
      const [id, it] = pick([...online, ['', undefined] as const])
      if (!it) return
      online.delete(id)
      if (random() < 0.3) registry.remove(it.endpoint)
      else registry.suspend(it.endpoint, it.session.identity)
    }

    const front = async () => {
      const clouds = [...registry.all()].filter((it) => it.type === 'cloud')
      if (clouds.length > 6) {
        await cloudEndpoints.delete(pick(clouds))
        return
      }
      const ownerId = pick(accounts)
      const isGranted = random() < 0.3
      const url = `${pick(['http', 'https'])}://${pick(NAMES)}`
      await attempt(async () => {
        const made = await cloudEndpoints.create(
          { url, ownerId, trafficPolicy: POLICY },
          { isGranted },
        )
        // What the gateway's owner puts there is given to that account.
        const rules = [`bind:${made.host}`]
        if (isGranted) oracle.credentials.set(made.id, { owner: ownerId, rules, granted: rules })
      })
    }

    const steps: readonly [share: number, step: () => Promise<unknown> | unknown][] = [
      [0.012, reserve],
      [0.008, release],
      [0.005, give],
      [0.012, issue],
      [0.006, front],
      [0.2, bind],
      [0.1, lose],
      [0.05, () => clock.advance(pick([1_000, 6_000, 20_000, HOUR_MS / 2]))],
    ]
    for (let at = 0; at < STEPS; at += 1) {
      let left = random()
      const chosen = steps.find(([share]) => {
        left -= share
        return left < 0
      })
      if (!chosen) visit(pick(HOSTS), pick(PROTOCOLS))
      else {
        await chosen[1]()
        if ([reserve, release, give, issue].includes(chosen[1] as typeof reserve)) recheck()
      }
    }
    // The steps have come to everything that they are to try.
    for (const [what, count] of Object.entries(seen))
      expect([what, count > 20]).toEqual([what, true])
    expect(database.report().healing).toBeFalsy()
  })
})
