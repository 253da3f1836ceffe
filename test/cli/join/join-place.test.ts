import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import {
  authtokenIn,
  belongingOf,
  type FileWrite,
  folderPlace,
  installedPlace,
  isSameGateway,
  type JoinPlace,
  planJoin,
  planLeave,
  writeInto,
} from '../../../src/cli/join/join-place.ts'
import { JoinRecord } from '../../../src/cli/join/join-record.ts'
import { parseConfig } from '../../../src/config.ts'
import type { Joined } from '../../../src/join/join-client.ts'
import { makeJoinString, pinOf } from '../../../src/join/join-string.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

const { caPem: OLD_CA } = await createAuthority()
const { caPem: NEW_CA } = await createAuthority()

function joinedAt(name: string, caPem: string): Joined {
  return {
    name: 'cam-7',
    authtoken: new Secret(`token-of-${name}`),
    domain: `*.cam-7.${name}.test`,
    agentDomain: `agent.cam-7.${name}.test`,
    agentUrl: `https://agent.cam-7.${name}.test`,
    tags: [],
    serverAddrs: [`${name}.test:4443`, '[2001:db8::1]:4443'],
    caPem,
    clockAheadMs: 0,
  }
}

const OLD = joinedAt('old', OLD_CA)
const NEW = joinedAt('new', NEW_CA)

function apply(place: JoinPlace, writes: readonly FileWrite[]): void {
  for (const write of writes) writeInto(place, write)
}

/** How the agent would connect with the files as they are, as systemd and `.env` hand them over. */
function agentIn(place: JoinPlace, { isPassing = true } = {}) {
  const settings = existsSync(place.envPath) ? parse(readFileSync(place.envPath)) : {}
  const credentials = isPassing &&
    place.tokenPath && { CREDENTIALS_DIRECTORY: join(place.tokenPath, '..') }
  const { agent } = parseConfig({ ...settings, ...credentials })
  const { authtoken, authtokenFile, caCertPath, domain, serverAddrs } = agent
  const caPath = caCertPath && (place.tokenPath ? join(place.root, caCertPath) : caCertPath)
  const ca = caPath && existsSync(caPath) ? readFileSync(caPath, 'utf8') : ''
  return {
    server: serverAddrs[0],
    domain,
    token: authtokenFile ? readFileSync(authtokenFile, 'utf8').trim() : authtoken?.reveal(),
    trusts: [OLD_CA, NEW_CA].filter((pem) => ca.includes(pem.trim())),
  }
}

const agentOf = ({ serverAddrs: [server], agentDomain: domain, authtoken }: Joined) => ({
  server,
  domain,
  token: authtoken.reveal(),
})

const PLACES: readonly (readonly [string, () => JoinPlace])[] = [
  ['the service', () => installedPlace(temporaryFolder())],
  [
    'a folder',
    () => {
      const folder = temporaryFolder()
      return folderPlace(join(folder, '.env'), join(folder, 'data'))
    },
  ],
]

describe.each(PLACES)('the files of a join for %s', (_name, makePlace) => {
  it('move a device at one write, wherever a power cut comes', () => {
    const place = makePlace()
    apply(place, planJoin(place, OLD, { isSame: false }))
    const writes = planJoin(place, NEW, { isSame: false })
    const states = writes.map((write) => {
      const seen = agentIn(place)
      writeInto(place, write)
      return seen
    })
    states.push(agentIn(place))
    const moved = states.findIndex(({ server }) => server === 'new.test:4443')
    expect(moved).toBeGreaterThan(0)
    for (const [at, { trusts, ...agent }] of states.entries()) {
      expect(agent).toEqual(agentOf(at < moved ? OLD : NEW))
      expect(trusts).toContain(at < moved ? OLD_CA : NEW_CA)
    }
    expect(states.at(-1)?.trusts).toEqual([NEW_CA])
    expect(readFileSync(place.envPath, 'utf8')).not.toContain('SVC_AUTHTOKEN_JOINED')
  })

  it('send no authtoken elsewhere while a first join is written', () => {
    const place = makePlace()
    for (const write of planJoin(place, NEW, { isSame: false })) {
      const { token, server } = agentIn(place)
      expect(token === undefined || server === 'new.test:4443').toBe(true)
      writeInto(place, write)
    }
    expect(agentIn(place)).toEqual({ ...agentOf(NEW), trusts: [NEW_CA] })
  })

  it('have the modes of secrets, and keep the settings of the owner', () => {
    const place = makePlace()
    mkdirSync(join(place.envPath, '..'), { recursive: true })
    writeFileSync(place.envPath, '# mine\nAGENT_MAX_TUNNELS=7\nSVC_AUTHTOKEN_FILE=/old/token\n')
    apply(place, planJoin(place, NEW, { isSame: false }))
    const text = readFileSync(place.envPath, 'utf8')
    expect(text).toMatch(/^# mine\nAGENT_MAX_TUNNELS=7\n/)
    expect(text).not.toContain('/old/token')
    const modes = [place.envPath, place.caPath, ...(place.tokenPath ? [place.tokenPath] : [])].map(
      (path) => (statSync(path).mode & 0o777).toString(8),
    )
    expect(modes).toEqual(place.tokenPath ? ['600', '644', '600'] : ['600', '644'])
  })

  it('are removed by a leave, which finds nothing the second time', () => {
    const place = makePlace()
    apply(place, planJoin(place, NEW, { isSame: false }))
    const string = makeJoinString({
      pin: pinOf(NEW_CA),
      addresses: [{ host: 'new.test', port: 4443 }],
    })
    const record = new JoinRecord(place)
    record.claimFor(string)
    record.finish(string, NEW)
    const belonging = belongingOf(place)
    expect(belonging && isSameGateway(belonging, string)).toBe(true)
    for (const { path, text, mode } of planLeave(place)) {
      if (text === undefined) rmSync(path)
      else writeInto(place, { path, text, mode })
      const { server, token, trusts } = agentIn(place)
      // Never an authtoken for another service, nor a server whose CA is missing.
      expect(server === undefined ? token : trusts[0]).toBe(server && NEW_CA)
    }
    expect(planLeave(place)).toEqual([])
    expect(belongingOf(place)).toBeUndefined()
    expect(agentIn(place)).toMatchObject({ server: undefined, token: undefined, trusts: [] })
  })

  it('keep one claim until the device has joined, and never the secret of the invitation', () => {
    const place = makePlace()
    const addresses = [{ host: 'new.test', port: 4443 }]
    const string = makeJoinString({ pin: pinOf(NEW_CA), addresses })
    const claim = new JoinRecord(place).claimFor(string).reveal()
    expect(readFileSync(place.recordPath, 'utf8')).toContain(claim)
    expect(statSync(place.recordPath).mode & 0o777).toBe(0o600)
    expect(new JoinRecord(place).claimFor(string).reveal()).toBe(claim)
    const other = makeJoinString({ pin: pinOf(NEW_CA), addresses })
    expect(new JoinRecord(place).claimFor(other).reveal()).not.toBe(claim)
    const again = new JoinRecord(place)
    again.claimFor(string)
    again.finish(string, NEW)
    const kept = readFileSync(place.recordPath, 'utf8')
    expect(kept).not.toContain(string.secret.reveal())
    expect(kept).not.toContain(claim)
    expect(new JoinRecord(place).hasUsed(string)).toBe(true)
    expect(new JoinRecord(place).hasUsed(other)).toBe(false)
    // A join with another string that fails changes nothing of that.
    const third = makeJoinString({ pin: pinOf(NEW_CA), addresses })
    const [otherClaim, thirdClaim] = [other, third].map((it) =>
      new JoinRecord(place).claimFor(it).reveal(),
    )
    expect(new JoinRecord(place).hasUsed(string)).toBe(true)
    expect(new JoinRecord(place).claimFor(other).reveal()).toBe(otherClaim)
    expect(new JoinRecord(place).claimFor(third).reveal()).toBe(thirdClaim)
    for (let made = 0; made < 20; made += 1) {
      new JoinRecord(place).claimFor(makeJoinString({ pin: pinOf(NEW_CA), addresses }))
    }
    expect(new JoinRecord(place).joined?.name).toBe('cam-7')
    expect(readFileSync(place.recordPath, 'utf8').match(/"claim"/g)).toHaveLength(8)
    writeFileSync(place.recordPath, '{"version":1')
    expect(new JoinRecord(place).joined).toBeUndefined()
  })
})

/** The service of a machine where a person has set SVC_AUTHTOKEN, because its systemd passes no credentials. */
function placeWithLine(): JoinPlace {
  const place = installedPlace(temporaryFolder())
  apply(place, planJoin(place, OLD, { isSame: false }))
  appendFileSync(place.envPath, `SVC_AUTHTOKEN=${OLD.authtoken.reveal()}\n`)
  chmodSync(place.envPath, 0o644)
  return place
}

describe('a service with SVC_AUTHTOKEN among its settings', () => {
  const AGAIN: Joined = { ...OLD, authtoken: new Secret('renewed') }
  const SYSTEMDS = [{ isPassing: true }, { isPassing: false }]

  it.each([
    ['the same gateway', AGAIN, true],
    ['another gateway', NEW, false],
  ] as const)(
    'has the new authtoken after a join of %s, wherever a power cut comes',
    (_, to, isSame) => {
      const place = placeWithLine()
      const states: ReturnType<typeof agentIn>[][] = []
      const look = () => states.push(SYSTEMDS.map((it) => agentIn(place, it)))
      look()
      for (const write of planJoin(place, to, { isSame })) {
        writeInto(place, write)
        look()
      }
      const moved = states.findIndex(([agent]) => agent?.token === to.authtoken.reveal())
      expect(moved).toBeGreaterThan(0)
      for (const [at, agents] of states.entries()) {
        const one = at < moved ? OLD : to
        for (const { trusts, ...agent } of agents) {
          expect(agent).toEqual(agentOf(one))
          expect(trusts).toContain(one.caPem)
        }
      }
      const text = readFileSync(place.envPath, 'utf8')
      expect(text.match(/^SVC_AUTHTOKEN.*/gm)).toEqual([`SVC_AUTHTOKEN=${to.authtoken.reveal()}`])
      expect(text).not.toContain(OLD.authtoken.reveal())
      expect(statSync(place.envPath).mode & 0o777).toBe(0o600)
      expect(readFileSync(place.tokenPath ?? '', 'utf8').trim()).toBe(to.authtoken.reveal())
    },
  )

  it('leaves its gateway with each authtoken, and never has one for another service', () => {
    const place = placeWithLine()
    for (const { path, text, mode } of planLeave(place)) {
      if (text === undefined) rmSync(path)
      else writeInto(place, { path, text, mode })
      for (const { server, token } of SYSTEMDS.map((it) => agentIn(place, it))) {
        expect(token === undefined || server === 'old.test:4443').toBe(true)
      }
    }
    expect(readFileSync(place.envPath, 'utf8')).not.toContain('token-of')
    expect(existsSync(place.tokenPath ?? '')).toBe(false)
  })

  it('proves itself with the authtoken that its agent uses, whichever is older', () => {
    const place = placeWithLine()
    const proof = () => authtokenIn(place)?.reveal()
    const { tokenPath = '', passedPath = '' } = place
    // systemd passes no credentials, so the agent uses the setting.
    writeFileSync(tokenPath, 'in-file\n')
    expect([proof(), agentIn(place, { isPassing: false }).token]).toEqual([
      'token-of-old',
      'token-of-old',
    ])
    mkdirSync(join(passedPath, '..'), { recursive: true })
    // A copy of an earlier gateway, if the service was not restarted since.
    writeFileSync(passedPath, 'of-another-gateway\n')
    expect(proof()).toBe('in-file')
    rmSync(passedPath)
    writeFileSync(
      place.envPath,
      readFileSync(place.envPath, 'utf8').replace(/^SVC_AUTHTOKEN=.*\n/m, ''),
    )
    expect(proof()).toBe('in-file')
    // An interrupted join: the agent uses its authtoken before all others.
    appendFileSync(place.envPath, 'SVC_AUTHTOKEN_JOINED=joined\n')
    expect(proof()).toBe('joined')
  })
})
