import { chmodSync, chownSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { expect, it } from 'vitest'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { type AdmissionOptions, admit } from '../../../src/gateway/cluster/admission.ts'
import { parseJoinToken } from '../../../src/gateway/cluster/peers/join-token.ts'
import { readIdentity } from '../../../src/gateway/cluster/peers/peer-identity.ts'
import { DatabaseError } from '../../../src/gateway/cluster/postgres/database-error.ts'
import { isReadableByService, requireReadable } from '../../../src/gateway/cluster/service-file.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createCluster, createMaterial } from '../../helpers/cluster.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A gateway with a folder of its own, and a token in a file if there is one. */
function newcomer(
  material: AdmissionOptions['material'],
  token?: string,
  clock: Clock = systemClock,
) {
  const folder = temporaryFolder()
  const joinTokenPath = token === undefined ? undefined : join(folder, 'join-token')
  if (joinTokenPath !== undefined) writeFileSync(joinTokenPath, `${token}\n`)
  const captured = captureLog()
  return { folder, material, joinTokenPath, captured, log: captured.log, clock }
}

it('lets the first one in by itself, and any other one with a token alone', async () => {
  const first = newcomer(createMaterial())
  const identity = await admit(first)
  expect(readIdentity(first.folder)).toEqual(identity)
  await expect(admit(newcomer(first.material))).rejects.toThrow('belongs to an existing cluster')

  const { material, makeToken, authority } = await createCluster()
  const token = (await makeToken()).reveal()
  const second = newcomer(material, token)
  const joined = await admit(second)
  expect(joined).toEqual(readIdentity(second.folder))
  expect(joined.authorityPem).toBe(authority.certPem)
  expect([...material.tokens.values()]).toMatchObject([{ usedBy: joined.nodeId }])
  expect(second.captured.lines).toMatchObject([{ msg: 'node joined', node: joined.nodeId }])
  expect(second.captured.text()).not.toContain(parseJoinToken(token)?.secret)
})

it('lets one in with a token, whoever is quicker', async () => {
  const { material, makeToken } = await createCluster()
  const token = (await makeToken()).reveal()
  const all = [1, 2, 3].map(() => newcomer(material, token))
  const results = await Promise.allSettled(all.map((it) => admit(it)))
  const said = results.map((it) => (it.status === 'rejected' ? it.reason.message : 'joined'))
  const used = expect.stringContaining('was already used. Create a new token')
  expect(said.sort()).toEqual([used, used, 'joined'])
  expect(all.filter(({ folder }) => readIdentity(folder))).toHaveLength(1)
  // Also later on.
  await expect(admit(newcomer(material, token))).rejects.toThrow('token was already used')
})

it('refuses a token that is not kept, or whose secret is another, and tells neither from the other', async () => {
  const { material, makeToken } = await createCluster()
  const token = (await makeToken()).reveal()
  const { id, secret } = parseJoinToken(token) ?? expect.fail('no join token')
  for (const wrong of [
    token.replace(id, '0'.repeat(16)),
    token.replace(secret, 'x'.repeat(secret.length)),
  ]) {
    await expect(admit(newcomer(material, wrong))).rejects.toThrow('is unknown to the cluster')
  }
  // It is as good as before.
  await expect(admit(newcomer(material, token))).resolves.toBeDefined()
})

it('refuses a token that has expired', async () => {
  const clock = new ManualClock()
  const { material, makeToken } = await createCluster(clock)
  const [one, other] = [(await makeToken(1_000)).reveal(), (await makeToken(1_000)).reveal()]
  clock.stepWall(999)
  await expect(admit(newcomer(material, one, clock))).resolves.toBeDefined()
  clock.stepWall(1)
  await expect(admit(newcomer(material, other, clock))).rejects.toThrow('has expired. Create a new')
  // Whoever starts again with the one that was good is told what became of it.
  await expect(admit(newcomer(material, one, clock))).rejects.toThrow('token was already used')
})

it('passes on what the database says, and uses no token up', async () => {
  const { material, makeToken } = await createCluster()
  const token = (await makeToken()).reveal()
  const away = new DatabaseError('database-unreachable', 'nobody answers')
  const findJoinToken = () => Promise.reject(away)
  const { folder, ...options } = newcomer({ ...material, findJoinToken }, token)
  await expect(admit({ ...options, folder })).rejects.toBe(away)
  expect(readIdentity(folder)).toBeUndefined()
  expect([...material.tokens.values()]).toMatchObject([{ usedBy: undefined }])
})

it('says what is wrong with a token, and where it stands', async () => {
  const [{ material }, other] = [await createCluster(), await createCluster()]
  const foreign = newcomer(material, (await other.makeToken()).reveal())
  await expect(admit(foreign)).rejects.toThrow(
    `${foreign.joinTokenPath} is for another cluster than GATEWAY_DATABASE_URL: run`,
  )
  const none = newcomer(material, 'nothing')
  await expect(admit(none)).rejects.toThrow(
    `${none.joinTokenPath} contains no valid join token: run`,
  )
  const lost = { ...none, joinTokenPath: join(none.folder, 'lost') }
  await expect(admit(lost)).rejects.toThrow(`${lost.joinTokenPath} cannot be read: ENOENT.`)
  for (const { folder } of [foreign, none]) expect(readIdentity(folder)).toBeUndefined()
})

/** Runs as another user than root, as the service does. */
async function asService<T>(work: () => T): Promise<Awaited<T>> {
  process.seteuid?.(65_534)
  try {
    return await work()
  } finally {
    process.seteuid?.(0)
  }
}

// Only root may become another user.
it.runIf(process.geteuid?.() === 0)('names files that the service cannot read', async () => {
  const { material, makeToken } = await createCluster()
  const options = newcomer(material, (await makeToken()).reveal())
  const path = options.joinTokenPath ?? ''
  chmodSync(path, 0o600)
  const text = `The service cannot read ${path}. Give the file to the user of the service: sudo chown --reference=${options.folder} ${path} && sudo chmod 600 ${path}`
  await expect(asService(() => admit(options))).rejects.toThrow(text)
  await expect(asService(() => requireReadable(path, options.folder))).rejects.toThrow(text)
  expect(() => requireReadable(path, options.folder)).not.toThrow()
  expect(() => requireReadable(`${path}.lost`, options.folder)).not.toThrow()
})

it.runIf(process.geteuid?.() === 0)('knows from its mode whether the service reads a file', () => {
  const folder = temporaryFolder()
  chownSync(folder, 1234, 1234)
  const path = join(temporaryFolder(), 'db-password')
  writeFileSync(path, 'secret')
  const isReadable = (uid: number, gid: number, mode: number) => {
    chownSync(path, uid, gid)
    chmodSync(path, mode)
    return isReadableByService(path, folder)
  }
  expect([isReadable(0, 0, 0o600), isReadable(0, 0, 0o640), isReadable(0, 1234, 0o600)]).toEqual([
    ...[false, false, false],
  ])
  expect([
    isReadable(1234, 0, 0o600),
    isReadable(0, 1234, 0o640),
    isReadable(0, 0, 0o644),
    isReadableByService(`${path}.lost`, folder),
  ]).toEqual([true, true, true, true])
})
