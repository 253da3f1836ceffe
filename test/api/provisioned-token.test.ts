import { expect, it } from 'vitest'
import { KeptValues } from '../../src/agent/kept-values.ts'
import { ApiTokens } from '../../src/api/api-tokens.ts'
import { adoptProvisionedToken } from '../../src/api/owner-token.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createToken, hashToken } from '../../src/base/secret.ts'
import { startApi } from './started-api.ts'

const TOKEN = createToken('dagt_')

async function started() {
  const { folder, database, trail, tokens, log, call, lines } = await startApi()
  const kept = new KeptValues(database)
  /** What a start does with the setting; the tokens are read anew. */
  const start = (token = TOKEN) => {
    const again = new ApiTokens({
      database,
      dataDir: folder,
      given: undefined,
      log,
      clock: systemClock,
    })
    adoptProvisionedToken({ hash: hashToken(token), tokens: again, kept, trail, log })
    return again
  }
  const told = async () =>
    (await call('GET', '/audit')).json.entries
      .filter(({ target }: { target: { id: string } }) => target.id === 'provisioned')
      .map(({ action }: { action: string }) => action)
  return { start, tokens, told, lines }
}

it('opens the API for who has the token, over starts, with one row in the trail', async () => {
  const { start, told, lines } = await started()
  for (const tokens of [start(), start()]) {
    expect(tokens.authenticate(TOKEN)).toMatchObject({
      actor: { id: 'provisioned', name: 'provisioned' },
      scope: 'write',
    })
  }
  expect(await told()).toEqual(['token.create'])
  expect(lines).toContainEqual(
    expect.objectContaining({
      id: 'provisioned',
      msg: 'the API token from provisioning is active',
    }),
  )
})

it('stays what a rotation or a revocation has made of it', async () => {
  const { start } = await started()
  const { secret } = start().rotate('provisioned', { overlapMs: 0, expiresAt: undefined })
  const rotated = start()
  expect(rotated.authenticate(TOKEN)).toBeUndefined()
  expect(rotated.authenticate(secret.reveal())).toMatchObject({ scope: 'write' })
  rotated.revoke('provisioned')
  const revoked = start()
  expect(revoked.authenticate(TOKEN)).toBeUndefined()
  expect(revoked.authenticate(secret.reveal())).toBeUndefined()
})

it('takes another one over when the device is provisioned anew', async () => {
  const { start, told } = await started()
  start()
  const next = createToken('dagt_')
  const tokens = start(next)
  expect(tokens.authenticate(TOKEN)).toBeUndefined()
  expect(tokens.authenticate(next)).toMatchObject({ scope: 'write' })
  expect(await told()).toEqual(['token.rotate', 'token.create'])
})

it('leaves a token alone that somebody has named so', async () => {
  const { start, tokens } = await started()
  tokens.create({ name: 'provisioned', scope: 'read', expiresAt: null })
  expect(
    start()
      .list()
      .map(({ name }) => name),
  ).toContain('provisioned-2')
})
