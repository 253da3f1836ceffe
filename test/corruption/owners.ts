import { KeptValues } from '../../src/agent/kept-values.ts'
import { TunnelStore } from '../../src/agent/tunnel-store.ts'
import { openAgentDatabase } from '../../src/api/agent-database.ts'
import { ApiTokenStore } from '../../src/api/api-token-store.ts'
import type { Clock } from '../../src/base/clock.ts'
import type { Logger } from '../../src/base/logger.ts'
import { openGatewayDatabase } from '../../src/gateway/gateway-database.ts'
import { AuditTable } from '../../src/store/audit-trail.ts'
import type { Database } from '../../src/store/database.ts'

export interface OpenOptions {
  readonly log: Logger
  readonly clock: Clock
  readonly onRestartNeeded: (reason: string) => void
}

/** Whose database is damaged. */
export interface Owner {
  readonly file: string
  open(folder: string, options: OpenOptions): { database: Database; change(number: number): void }
}

const POLICY = {
  on_http_request: [{ actions: [{ type: 'deny', config: { note: 'x'.repeat(500) } }] }],
}

/** Creates, changes and deletes as the programs do, so that all kinds of changes are in the files. */
export const OWNERS: Readonly<Record<string, Owner>> = {
  agent: {
    file: 'agent.db',
    open: (folder, options) => {
      const database = openAgentDatabase(folder, options)
      const tunnels = new TunnelStore(database)
      const kept = new KeptValues(database)
      const tokens = new ApiTokenStore(database)
      const trail = new AuditTable(database)
      const tunnel = (number: number, port: number) => ({
        id: `tun_${number}`,
        spec: {
          protocol: 'http' as const,
          forwardsTo: `localhost:${port}`,
          domain: `d${number}.site.localhost`,
          policy: POLICY,
        },
        createdAt: 1_900_000_000_000 + number,
        updatedAt: 1_900_000_000_000 + number,
      })
      const change = (number: number) => {
        tunnels.insert(tunnel(number, 8000 + number))
        tunnels.keep(`tun_${number}`)
        if (number % 3 === 0) {
          const before = tunnel(number - 1, 8000 + number - 1)
          tunnels.replace(before, tunnel(number - 1, 9000 + number))
          tunnels.keepReplacement(before.id)
        }
        if (number % 5 === 0) tunnels.delete(`tun_${number - 2}`)
        if (number % 7 === 0) kept.set('public-port', String(number))
        if (number % 4 === 0) database.write(() => makeToken(tokens, number))
        database.write(() => note(trail, number))
      }
      return { database, change }
    },
  },
  gateway: {
    file: 'gateway.db',
    open: (folder, options) => {
      const stores = openGatewayDatabase(folder, options)
      const { database, domains, botUsers, credentials, apiKeys, ipPolicies, ipPolicyRules } =
        stores
      const trail = new AuditTable(database)
      const change = (number: number) => {
        const common = {
          ownerId: null,
          description: `made as ${number}`,
          metadata: '',
          createdAt: number,
        }
        const id = (prefix: string) => `${prefix}_${String(number).padStart(6, '0')}`
        const ownerId = id('bot')
        database.write(() =>
          botUsers.insert({
            id: ownerId,
            name: `bot ${number}`,
            active: true,
            quotas: {},
            createdAt: number,
          }),
        )
        const acl = [`bind:*.d${number}.site.localhost`]
        database.write(() =>
          credentials.insert({
            ...common,
            id: id('cr'),
            ownerId,
            acl,
            granted: acl,
            tokenHash: 'h'.repeat(64),
            successor: null,
          }),
        )
        database.write(() =>
          apiKeys.insert({
            ...common,
            id: id('ak'),
            ownerId,
            name: `key ${number}`,
            scope: 'write',
            isOwnerOnly: true,
            expiresAt: null,
            lastUsedAt: null,
            tokenHash: 'k'.repeat(64),
          }),
        )
        database.write(() =>
          domains.insert({
            ...common,
            id: id('rd'),
            domain: `*.d${number}.test`,
            region: 'us',
            dnsLabel: `label${number}`,
            challenge: 'dns-01',
            authority: 'gateway',
            privateKeyType: 'ecdsa',
            certificateId: null,
            isGranted: true,
          }),
        )
        database.write(() => ipPolicies.insert({ ...common, id: id('ipp') }))
        const rule = { ...common, id: id('ipr'), ipPolicyId: id('ipp'), action: 'deny' as const }
        database.write(() => ipPolicyRules.insert({ ...rule, cidr: '10.0.0.0/8' }))
        // Takes its authtoken and its API key along.
        if (number % 4 === 0) {
          database.write(() => botUsers.delete(ownerId), { mayUseReserve: true })
        }
        database.write(() => note(trail, number))
      }
      return { database, change }
    },
  },
}

function makeToken(tokens: ApiTokenStore, number: number): void {
  const token = {
    id: `tok_${number}`,
    name: `token ${number}`,
    scope: 'read' as const,
    createdAt: number,
    expiresAt: null,
    lastUsedAt: null,
  }
  tokens.put(token, [{ hash: `hash-${number}`, tokenId: token.id, endsAt: null }])
}

function note(trail: AuditTable, number: number): void {
  const actor = { kind: 'token', id: 'tok_1', name: 'somebody' } as const
  const change = { actor, client: '127.0.0.1', action: 'tunnel.create', targetId: `tun_${number}` }
  trail.append(change, number, 'ok')
}
