import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AGENT_MIGRATIONS, openAgentDatabase } from '../../src/api/agent-database.ts'
import { ApiTokens } from '../../src/api/api-tokens.ts'
import { openOwnerToken } from '../../src/api/owner-token.ts'
import { StartError } from '../../src/base/app-error.ts'
import { hashToken, Secret } from '../../src/base/secret.ts'
import { AuditTrail } from '../../src/store/audit-trail.ts'
import { openDatabase } from '../../src/store/database.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOUR = 3_600_000
const GIVEN = 'given-token-of-the-owner'

/** One start of the agent, as far as its tokens go. */
function start(folder: string, { given, clock = new ManualClock() }: StartOptions = {}) {
  const captured = captureLog()
  const { log } = captured
  const database = openAgentDatabase(folder, { log, clock })
  onTestFinished(() => database.close())
  const trail = new AuditTrail({ database, log, clock })
  void trail.start()
  const secret = given === undefined ? undefined : new Secret(given)
  const tokens = new ApiTokens({ database, dataDir: folder, given: secret, log, clock })
  openOwnerToken({ tokens, trail, log })
  return {
    tokens,
    trail,
    database,
    clock,
    path: tokens.ownerPath,
    owner: tokens.ownerPlain?.reveal() ?? '',
    text: captured.text,
    /** Whether it is taken, as whom, or why not. */
    ask: (token: string) => {
      const found = tokens.authenticate(token)
      return found === 'ended' ? 'ended' : found?.actor.name
    },
    create: (name: string, expiresAt: number | null = null) =>
      tokens.create({ name, scope: 'read', expiresAt }).secret.reveal(),
    rotate: (name: string, overlapMs: number) =>
      tokens.rotate(name, { overlapMs, expiresAt: undefined }).secret.reveal(),
    stop: () => database.close(),
  }
}

interface StartOptions {
  readonly given?: string
  readonly clock?: ManualClock
}

function restart(folder: string, before: ReturnType<typeof start>, options: StartOptions = {}) {
  before.stop()
  return start(folder, options)
}

const codeOf = (run: () => unknown) => {
  try {
    run()
  } catch (error) {
    return (error as { code?: string }).code
  }
  return 'nothing'
}

describe("the owner's token", () => {
  it('is made at the first start and left in a file for this user alone', () => {
    const { ask, path, text, owner } = start(temporaryFolder())
    const written = readFileSync(path, 'utf8')
    expect(written).toMatch(/^dagt_[\w-]{43}\n$/)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect([ask(written.trim()), owner]).toEqual(['owner', written.trim()])
    expect(text()).not.toContain(owner)
  })

  it('is taken from other users that could read its file, and they are told of', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    chmodSync(first.path, 0o644)
    const second = restart(folder, first)
    expect(statSync(second.path).mode & 0o777).toBe(0o600)
    expect(second.text()).toContain('other users could read this file, rotate the API token')
    expect(second.ask(first.owner)).toBe('owner')
    chmodSync(second.path, 0o640)
    const third = restart(folder, second)
    expect(third.text()).not.toContain('other users')
    expect(statSync(third.path).mode & 0o777).toBe(0o640)
  })

  it('is in the database as a hash only', () => {
    const folder = temporaryFolder()
    const { owner, stop } = start(folder)
    stop()
    const bytes = readFileSync(join(folder, 'agent.db'))
    expect(bytes.includes(hashToken(owner))).toBe(true)
    expect(bytes.includes(owner.slice(5))).toBe(false)
  })

  it('stays the same at the next start', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    expect(restart(folder, first).ask(first.owner)).toBe('owner')
  })

  it('is another one when its file was deleted, and the old one is dead', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    rmSync(first.path)
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.ask(second.owner)]).toEqual([undefined, 'owner'])
    const third = restart(folder, second)
    expect([third.ask(first.owner), third.ask(second.owner)]).toEqual([undefined, 'owner'])
  })

  it.each(['', 'dagt_short', 'dagt_'])('is another one when its file holds %j', (content) => {
    const folder = temporaryFolder()
    const first = start(folder)
    writeFileSync(first.path, content)
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.ask(second.owner)]).toEqual([undefined, 'owner'])
    expect(second.ask(content)).toBeUndefined()
  })

  it('is that of the file when the stored hash was damaged', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const hash = hashToken(first.owner)
    const flipped = `${hash[0] === '0' ? '1' : '0'}${hash.slice(1)}`
    first.database.write(() =>
      first.database.prepare<[string]>('UPDATE api_token_secrets SET hash = ?').run(flipped),
    )
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.owner]).toEqual(['owner', first.owner])
    expect(second.trail.page({ limit: 1 })[0]?.action).toBe('token.heal')
    expect(restart(folder, second).trail.page({ limit: 1 })[0]?.id).toBe(2)
  })

  it('is that of the file when the database was lost', () => {
    const first = start(temporaryFolder())
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'api-token'), `${first.owner}\n`)
    expect(start(folder).ask(first.owner)).toBe('owner')
  })

  it('is not the token of somebody else that was put into the file', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const reader = first.create('reader')
    writeFileSync(first.path, reader)
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.ask(reader)]).toEqual([undefined, 'reader'])
    expect(second.ask(second.owner)).toBe('owner')
  })

  it('stays what it was when nobody can read the file', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    rmSync(first.path)
    mkdirSync(first.path)
    expect(restart(folder, first).ask(first.owner)).toBe('owner')
  })

  it('is the setting while that is set, and the one of the file never comes back', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const second = restart(folder, first, { given: GIVEN })
    expect([second.ask(GIVEN), second.ask(first.owner)]).toEqual(['owner', undefined])
    expect(second.tokens.list()).toMatchObject([{ id: 'owner', source: 'setting' }])
    const third = restart(folder, second)
    expect([third.ask(GIVEN), third.ask(first.owner)]).toEqual([undefined, undefined])
    expect(third.ask(third.owner)).toBe('owner')
  })

  it('is kept when it was made by a version with one token', () => {
    const folder = temporaryFolder()
    const token = `dagt_${'a'.repeat(43)}`
    const old = AGENT_MIGRATIONS.findIndex(({ id }) => id === 'api-token-2')
    const clock = new ManualClock()
    const database = openDatabase({
      path: join(folder, 'agent.db'),
      migrations: AGENT_MIGRATIONS.slice(0, old),
      applicationId: 0x64616774,
      log: captureLog().log,
      clock,
    })
    const insert = 'INSERT INTO api_token (id, token_hash, created_at) VALUES (1, ?, 7)'
    database.write(() => database.prepare<[string]>(insert).run(hashToken(token)))
    database.close()
    writeFileSync(join(folder, 'api-token'), `${token}\n`)
    const { ask, tokens } = start(folder)
    expect(ask(token)).toBe('owner')
    expect(tokens.list()).toMatchObject([{ id: 'owner', scope: 'write', createdAt: 7 }])
  })

  it('is rotated in its file', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const rotated = first.rotate('owner', HOUR)
    expect(readFileSync(first.path, 'utf8')).toBe(`${rotated}\n`)
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.ask(rotated)]).toEqual(['owner', 'owner'])
  })

  it('can be revoked, and the next start makes another one', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    first.tokens.revoke('owner')
    expect(first.ask(first.owner)).toBeUndefined()
    expect(codeOf(() => first.create('owner'))).toBe('token-name-taken')
    const second = restart(folder, first)
    expect([second.ask(first.owner), second.ask(second.owner)]).toEqual([undefined, 'owner'])
  })

  it('is changed in the settings when it comes from there', () => {
    const { tokens, rotate } = start(temporaryFolder(), { given: GIVEN })
    expect(codeOf(() => tokens.revoke('owner'))).toBe('token-given')
    expect(codeOf(() => rotate('owner', 0))).toBe('token-given')
  })

  it.runIf(canMount())('stops the start when none can be kept (needs the right to mount)', () => {
    const { folder, remount } = mountSmallDisk('4m')
    const log = captureLog().log
    openAgentDatabase(folder, { log, clock: new ManualClock() }).close()
    remount('ro')
    expect(() => start(folder)).toThrow(StartError)
    expect(() => start(folder)).toThrow('AGENT_API_TOKEN')
  })

  it.runIf(canMount())('opens the API on a read-only disk, too (needs the right to mount)', () => {
    const { folder, remount } = mountSmallDisk('4m')
    const first = start(folder)
    first.stop()
    remount('ro')
    expect(start(folder).ask(first.owner)).toBe('owner')
    remount('rw')
    const second = start(folder)
    second.database.write(() =>
      second.database.prepare("UPDATE api_token_secrets SET hash = 'damaged'").run(),
    )
    second.stop()
    remount('ro')
    expect(start(folder).ask(first.owner)).toBe('owner')
  })
})

describe('a token', () => {
  it('opens the API for its holder until it is revoked, and never again', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const secret = first.create('crane')
    expect([first.ask(secret), first.ask(`${secret}x`)]).toEqual(['crane', undefined])
    const second = restart(folder, first)
    expect(second.ask(secret)).toBe('crane')
    second.tokens.revoke('crane')
    expect(second.ask(secret)).toBeUndefined()
    expect(restart(folder, second).ask(secret)).toBeUndefined()
  })

  it('works beside the one of the setting', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const secret = first.create('crane')
    expect(restart(folder, first, { given: GIVEN }).ask(secret)).toBe('crane')
  })

  it('ends at its end', async () => {
    const { create, ask, clock } = start(temporaryFolder())
    const secret = create('crane', clock.now() + HOUR)
    await clock.advance(HOUR - 1)
    expect(ask(secret)).toBe('crane')
    await clock.advance(1)
    expect(ask(secret)).toBe('ended')
  })

  it('has an end that lies ahead', async () => {
    const { create, clock, rotate, tokens } = start(temporaryFolder())
    expect(codeOf(() => create('past', clock.now()))).toBe('invalid-request')
    create('crane', clock.now() + HOUR)
    await clock.advance(HOUR)
    expect(codeOf(() => rotate('crane', 0))).toBe('invalid-request')
    expect(tokens.rotate('crane', { overlapMs: 0, expiresAt: null }).token.expiresAt).toBeNull()
  })

  it('has a name of its own, and there are at most a hundred', () => {
    const { create, tokens } = start(temporaryFolder())
    for (let n = 1; n < 100; n += 1) create(`token ${n}`)
    expect(codeOf(() => create('token 7'))).toBe('token-name-taken')
    expect(codeOf(() => create('one more'))).toBe('too-many-tokens')
    tokens.revoke('token 7')
    create('one more')
    expect(codeOf(() => tokens.find('token 7'))).toBe('token-not-found')
  })

  it('is found by its id before another that has this as its name', () => {
    const { tokens, create } = start(temporaryFolder())
    create('provisioned')
    tokens.adoptProvisioned(hashToken('of-the-provisioned-device'))
    expect(tokens.find('provisioned').name).toBe('provisioned-2')
    expect(tokens.revoke('provisioned').id).toBe('provisioned')
    expect(tokens.find('provisioned').id).toMatch(/^tok_/)
  })

  it('remembers its last use, written once a minute at most and without a backup', async () => {
    const folder = temporaryFolder()
    const { create, ask, clock, tokens, database } = start(folder)
    const secret = create('crane')
    const written = () =>
      database
        .prepare<[], number>("SELECT last_used_at FROM api_tokens WHERE name = 'crane'")
        .pluck()
        .get()
    expect(tokens.find('crane').lastUsedAt).toBeNull()
    const first = clock.now()
    ask(secret)
    await clock.advance(59_999)
    ask(secret)
    expect(tokens.find('crane').lastUsedAt).toBe(first + 59_999)
    expect(written()).toBe(first)
    await clock.advance(1)
    const { lastBackupAt } = database.report()
    ask(secret)
    expect(written()).toBe(first + 60_000)
    await clock.advance(60_000)
    expect(database.report().lastBackupAt).toBe(lastBackupAt)
  })
})

describe('a rotation', () => {
  it('lets the old secret work until the end of the overlap, restarts or not', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock()
    const first = start(folder, { clock })
    const old = first.create('crane')
    const fresh = first.rotate('crane', HOUR)
    expect(fresh).not.toBe(old)
    expect(first.tokens.find('crane').overlapEndsAt).toBe(clock.now() + HOUR)
    const second = restart(folder, first, { clock })
    await clock.advance(HOUR - 1)
    expect([second.ask(old), second.ask(fresh)]).toEqual(['crane', 'crane'])
    await clock.advance(1)
    expect([second.ask(old), second.ask(fresh)]).toEqual(['ended', 'crane'])
    expect(second.tokens.find('crane').overlapEndsAt).toBeNull()
    const third = restart(folder, second, { clock })
    expect([third.ask(old), third.ask(fresh)]).toEqual(['ended', 'crane'])
  })

  it('without an overlap ends every older secret at once', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const secrets = [first.create('crane'), first.rotate('crane', HOUR)]
    const fresh = first.rotate('crane', 0)
    for (const old of secrets) expect(first.ask(old)).toBeUndefined()
    const second = restart(folder, first)
    expect([...secrets, fresh].map(second.ask)).toEqual([undefined, undefined, 'crane'])
  })

  it('lengthens no overlap that was promised to be shorter', async () => {
    const { create, rotate, ask, clock } = start(temporaryFolder())
    const [oldest, older] = [create('crane'), rotate('crane', HOUR)]
    rotate('crane', 5 * HOUR)
    await clock.advance(HOUR)
    expect([ask(oldest), ask(older)]).toEqual(['ended', 'crane'])
  })

  it('lets an old secret live no longer than its token had to', async () => {
    const { create, tokens, ask, clock } = start(temporaryFolder())
    const old = create('crane', clock.now() + HOUR)
    tokens.rotate('crane', { overlapMs: 5 * HOUR, expiresAt: clock.now() + 9 * HOUR })
    await clock.advance(HOUR)
    expect(ask(old)).toBe('ended')
  })

  it('keeps a bounded number of secrets, and always has a way out', () => {
    const { create, rotate, ask } = start(temporaryFolder())
    create('crane')
    for (let n = 0; n < 7; n += 1) rotate('crane', HOUR)
    expect(codeOf(() => rotate('crane', HOUR))).toBe('too-many-tokens')
    expect(ask(rotate('crane', 0))).toBe('crane')
  })

  it('that the database refuses in the end leaves the file as it was', () => {
    const { rotate, owner, ask, path, database } = start(temporaryFolder())
    let isBroken = true
    database.onWrite(() => {
      if (isBroken) throw new Error('no room for the commit')
      return undefined
    })
    expect(() => rotate('owner', 0)).toThrow('no room for the commit')
    expect(readFileSync(path, 'utf8')).toBe(`${owner}\n`)
    isBroken = false
    expect(ask(owner)).toBe('owner')
  })
})
