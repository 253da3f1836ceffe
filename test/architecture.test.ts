import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  type Floors,
  fileCircles,
  foldersOf,
  type House,
  looseIn,
  readHouse,
  roomCircles,
  roomsIn,
  unplaced,
  withImport,
  wrongWays,
} from './helpers/house.ts'

const SRC = join(import.meta.dirname, '../src')

/**
 * Floors, top first: a file imports from its own room or from a floor below, and rooms on one floor
 * are strangers. Loose files that stand on no floor are the hall, above all rooms of their folder.
 */
const FLOORS: Floors = {
  '': [
    ['main.ts'],
    ['cli'],
    ['daemon.ts'],
    ['config.ts'],
    ['api', 'gateway'],
    ['agent'],
    ['settings'],
    ['join', 'policy', 'muxado', 'http', 'store'],
    ['base'],
  ],
  gateway: [
    ['gateway.ts'],
    ['cluster'],
    ['gateway-core.ts', 'provisioner.ts'],
    ['agents', 'ingress', 'management'],
    ['gateway-database.ts'],
    ['resources'],
    ['ports'],
    ['certificates', 'endpoints'],
    ['access', 'error-pages', 'streams'],
    ['records', 'origins'],
  ],
  agent: [
    ['policies'],
    ['agent-status.ts'],
    ['verdict.ts'],
    ['tunnel-store.ts'],
    ['device', 'tunnel.ts'],
    ['probes', 'sessions'],
    ['connector.ts'],
    ['upstreams'],
    ['inspection', 'problem.ts', 'timings.ts'],
    ['condition.ts'],
    ['kept-values.ts', 'link-state.ts', 'tunnel-state.ts', 'watched-file.ts'],
  ],
  api: [
    ['events', 'page'],
    ['api-tokens.ts', 'diagnosis', 'inspection', 'problem-view.ts'],
    ['api-token-store.ts', 'iso-time.ts', 'token-form.ts'],
  ],
  cli: [
    ['backup', 'join', 'setup', 'token'],
    ['bundle', 'fleet', 'service', 'site', 'update'],
    ['doctor', 'process-log.ts', 'provision'],
    ['settings-place.ts'],
    ['local', 'usage'],
    ['surroundings.ts'],
    ['command-context.ts'],
    [
      'agent-client.ts',
      'api-key-file.ts',
      'local-address.ts',
      'mistakes.ts',
      'reload',
      'version.ts',
    ],
  ],
  'gateway/cluster': [['nodes'], ['peers', 'replication'], ['postgres']],
  'gateway/ingress': [
    ['ingress.ts'],
    ['visitor'],
    ['exchange'],
    ['device'],
    ['common'],
    ['syntax'],
  ],
  'gateway/management': [['console']],
  'gateway/resources': [
    ['invites'],
    [
      'audit',
      'bot-users',
      'credentials',
      'devices',
      'endpoints',
      'certificate-authorities',
      'error-pages',
      'ip-policies',
      'nodes',
      'notifications',
      'reserved-names',
      'tls-certificates',
      'tunnel-sessions',
      'vaults',
      'webhooks',
    ],
    ['common'],
    ['filter'],
  ],
  store: [['journal'], ['storage-state.ts'], ['sqlite.ts']],
  policy: [
    ['actions'],
    ['login', 'rewriting'],
    ['limit', 'outbound', 'vocabulary'],
    ['exchange'],
    ['document', 'expression'],
    ['phase.ts'],
  ],
}
type Strangers = readonly (readonly [room: string, stranger: string])[]

/** Rooms that meet only on the wire, although one stands above the other. */
const STRANGERS: Strangers = [['gateway', 'agent']]

/** The plug-in for several gateways, and the only files that know that there is one. */
const PLUG_IN = 'gateway/cluster/'
const KNOWS_PLUG_IN = [
  'cli/backup/make-backup.ts',
  'cli/backup/restore-backup.ts',
  'cli/site/join-token.ts',
  'cli/site/migrate.ts',
  'gateway/gateway.ts',
]

/** At most that many files stand loose in a hall; any other folder is a room. */
const MAX_LOOSE: Readonly<Record<string, number>> = { '.': 3, gateway: 4, policy: 8 }
const MAX_IN_A_ROOM = 40

/** What only one place may import, so that it can be replaced there. */
const SOLE_USERS: Readonly<Record<string, readonly string[]>> = {
  '@bufbuild/cel': [
    'policy/expression/accounted-functions.ts',
    'policy/expression/expression.ts',
    'policy/expression/value.ts',
  ],
  '@ngrok/ngrok': ['agent/ngrok-connector.ts'],
  bowser: ['policy/exchange/user-agent.ts'],
  maxmind: ['gateway/origins/address-file.ts', 'gateway/origins/address-origins.ts'],
  'better-sqlite3': ['store/sqlite.ts'],
  pg: ['gateway/cluster/postgres/postgres-session.ts'],
}

const house = readHouse(SRC)
const textOf = (file: string) => readFileSync(join(SRC, file), 'utf8')
const filesWith = (pattern: RegExp) =>
  Array.from(house.keys()).filter((f) => pattern.test(textOf(f)))

/** Folders with more loose files than they may have. */
function overfull(rooms: House): string[] {
  return foldersOf(rooms).flatMap((folder) => {
    const loose = looseIn(rooms, folder).length
    return loose > (MAX_LOOSE[folder] ?? MAX_IN_A_ROOM) ? [`${folder}: ${loose}`] : []
  })
}

const allTexts = () => Array.from(house.keys(), textOf)

/** Classes of ours that extend one that extends another of ours. */
function deepClasses(texts: readonly string[]): string[] {
  const heads = texts.flatMap((text) => [
    ...text.matchAll(/\bclass (\w+)(?:<[^{]*?>)?\s+extends (\w+)/g),
  ])
  const parents = new Map(heads.map(([, name = '', parent = '']) => [name, parent]))
  return Array.from(parents).flatMap(([name, parent]) => {
    const above = parents.get(parent)
    const isDeep = above !== undefined && parents.has(above)
    return isDeep ? [`${name} extends ${parent} extends ${above}`] : []
  })
}

/** Imports from a room to one that it does not know; a room of its own inside of that may be known. */
function meetings(rooms: House, strangers: Strangers): string[] {
  const within = (path: string, room: string) => path.startsWith(`${room}/`)
  const isMeeting = (from: string, to: string) =>
    strangers.some(([a, b]) => within(from, a) && within(to, b) && !within(to, a))
  return Array.from(rooms).flatMap(([from, targets]) =>
    targets.filter((to) => isMeeting(from, to)).map((to) => `${from} -> ${to}`),
  )
}

/** Files outside of the plug-in that import it. */
function usersOfPlugIn(of: House): string[] {
  const isInside = (file: string) => file.startsWith(PLUG_IN)
  const entries = Array.from(of).filter(([file]) => !isInside(file))
  return entries.filter(([, targets]) => targets.some(isInside)).map(([file]) => file)
}

describe('the house', () => {
  it('has every room on a floor, and no floor without a room', () => {
    expect(unplaced(house, FLOORS)).toEqual([])
    const attic = new Map(house).set('gateway/attic/chest.ts', [])
    expect(unplaced(attic, FLOORS)).toEqual(['gateway/attic'])
    expect(unplaced(house, { '': [...(FLOORS[''] ?? []), ['cellar']] })).toEqual(['cellar'])
  })

  it('imports downwards only: not up, not sideways', () => {
    expect(wrongWays(house, FLOORS)).toEqual([])
  })

  it.each([
    ['base/clock.ts', 'http/parse.ts'],
    ['muxado/frame-codec.ts', 'store/heal.ts'],
    ['agent/upstreams/forward-rules.ts', 'agent/connector.ts'],
    ['agent/problem.ts', 'agent/agent.ts'],
    ['api/events/event-log.ts', 'api/app.ts'],
    ['api/inspection/inspect.ts', 'api/events/events.ts'],
    ['cli/usage/man-page.ts', 'cli/doctor/doctor.ts'],
    ['cli/doctor/doctor.ts', 'cli/program.ts'],
    ['gateway/agents/binder.ts', 'gateway/ingress/ingress.ts'],
    ['gateway/cluster/postgres/postgres-session.ts', 'gateway/cluster/nodes/claims.ts'],
    ['gateway/ingress/common/client.ts', 'gateway/ingress/device/forward.ts'],
    ['gateway/resources/common/resource.ts', 'gateway/resources/nodes/routes.ts'],
    ['gateway/resources/filter/filter.ts', 'gateway/resources/nodes/routes.ts'],
    ['gateway/resources/nodes/routes.ts', 'gateway/management/console/console.ts'],
    ['gateway/resources/nodes/routes.ts', 'gateway/resources/devices/devices.ts'],
    ['gateway/resources/devices/devices.ts', 'gateway/gateway-database.ts'],
    ['gateway/access/authority.ts', 'gateway/resources/credentials/routes.ts'],
    ['policy/expression/value.ts', 'policy/vocabulary/text.ts'],
    ['store/journal/row-journal.ts', 'store/file-database.ts'],
  ])('refuses %s to import %s', (from, to) => {
    expect([house.has(from), house.has(to)]).toEqual([true, true])
    expect(wrongWays(withImport(house, from, to), FLOORS)).toContain(`${from} -> ${to}`)
  })

  it('keeps the gateway and the agent strangers', () => {
    expect(meetings(house, STRANGERS)).toEqual([])
    const planted = withImport(house, 'gateway/gateway.ts', 'agent/link.ts')
    expect(meetings(planted, STRANGERS)).toEqual(['gateway/gateway.ts -> agent/link.ts'])
    for (const room of STRANGERS.flat()) expect(roomsIn(house, '')).toContain(room)
  })

  it('chooses in one place whether a gateway is one of several', () => {
    expect(usersOfPlugIn(house)).toEqual(KNOWS_PLUG_IN)
    const [core, node] = ['gateway/gateway-core.ts', 'gateway/cluster/cluster-node.ts']
    expect(usersOfPlugIn(withImport(house, core, node))).toContain(core)
    const [nodes, port] = ['gateway/management/nodes/nodes.ts', 'gateway/ports/duties.ts']
    for (const from of [core, nodes, port]) {
      expect(wrongWays(withImport(house, from, node), FLOORS)).toEqual([`${from} -> ${node}`])
    }
  })

  it('has no circle of files, those of types included', () => {
    expect(fileCircles(house)).toEqual([])
    const planted = withImport(house, 'base/clock.ts', 'base/closer.ts')
    expect(fileCircles(withImport(planted, 'base/logger.ts', 'base/clock.ts'))).toEqual([
      ['base/clock.ts', 'base/closer.ts', 'base/logger.ts'],
    ])
  })

  it('has no circle of rooms', () => {
    expect(roomCircles(house)).toEqual([])
    const [filter, hall] = ['gateway/resources/filter/filter.ts', 'gateway/management/batch.ts']
    expect(roomCircles(withImport(house, filter, hall))).not.toEqual([])
    const acme = 'gateway/certificates/acme/acme-account.ts'
    const keeper = 'gateway/certificates/certificate-keeper.ts'
    expect(roomCircles(withImport(house, acme, keeper))).toHaveLength(1)
  })

  it('has no hall or room with too much in it', () => {
    expect(overfull(house)).toEqual([])
    const planted = new Map(house)
    for (let n = 0; n <= MAX_IN_A_ROOM; n++) planted.set(`muxado/more-${n}.ts`, [])
    planted.set('gateway/one.ts', []).set('gateway/two.ts', []).set('gateway/three.ts', [])
    expect(overfull(planted)).toEqual([
      expect.stringMatching(/^gateway: /),
      expect.stringMatching(/^muxado: /),
    ])
  })
})

/** Texts that only one place may have, or none; each with a line that breaks the rule. */
const TEXT_RULES: readonly {
  readonly rule: string
  readonly pattern: RegExp
  readonly allowed: readonly string[]
  readonly broken: string
}[] = [
  ...Object.entries(SOLE_USERS).map(([library, allowed]) => ({
    rule: `imports ${library} in one place`,
    pattern: new RegExp(`(?:from|import)\\s*\\(?\\s*'${library}['/]`),
    allowed,
    broken: `import type { It } from '${library}'`,
  })),
  {
    rule: 'registers routes of the APIs in one place, from their declarations',
    pattern: /\b(?:router|app|api)\s*\.(?:route|get|post|put|patch|delete|all)\(/,
    allowed: ['http/routes.ts'],
    broken: "router.get('/secret', handler)",
  },
  {
    rule: 'takes zod as a namespace, so that only the used parts are bundled',
    pattern: /import \{ z \} from 'zod'/,
    allowed: [],
    broken: `import { z } from 'zod'`,
  },
  {
    rule: 'takes http from one file, so that Node does not load a second client with it',
    pattern: /^import (?!type )[^'{]*(?:\{[^'}]*\} )?from 'node:http'$/m,
    allowed: [],
    broken: `import { createServer } from 'node:http'`,
  },
  {
    rule: 'loads http in one file',
    pattern: /getBuiltinModule\('node:http'\)/,
    allowed: ['base/net/node-http.ts'],
    broken: `process.getBuiltinModule('node:http')`,
  },
  {
    rule: 'does not combine signals, which Node 20 loses timeouts of',
    pattern: /AbortSignal\.any\(/,
    allowed: [],
    broken: 'AbortSignal.any([a, b])',
  },
]

describe('the source', () => {
  it.each(TEXT_RULES)('$rule', ({ pattern, allowed, broken }) => {
    expect(filesWith(pattern)).toEqual(allowed)
    expect(pattern.test(broken)).toBe(true)
  })

  it('has at most one level of subclassing', () => {
    expect(deepClasses(allTexts())).toEqual([])
    const planted = 'class B extends Error {}\nclass C extends B {}\nclass D extends C {}'
    expect(deepClasses([...allTexts(), planted])).toEqual(['D extends C extends B'])
  })
})

describe('docs/internals/overview.md', () => {
  it('says truly which rooms do not know each other', () => {
    const page = readFileSync(join(SRC, '../docs/internals/overview.md'), 'utf8')
    const rows = [...page.matchAll(/^\| `([\w/-]+)\/` \|.*\| ([^|]+) \|$/gm)]
    const strangers = rows.flatMap(([, room = '', list = '']) =>
      Array.from(list.matchAll(/`([\w/-]+)`/g), ([, stranger = '']) => [room, stranger] as const),
    )
    expect(strangers.length).toBeGreaterThan(20)
    for (const room of strangers.flat()) expect(foldersOf(house).join()).toContain(room)
    expect(meetings(house, strangers)).toEqual([])
  })
})
