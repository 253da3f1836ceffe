import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { rejectionCode } from '../../helpers/service-code.ts'

describe('CredentialIssuer', () => {
  it('keeps tokens as hashes only', async () => {
    const { issuer, folder, database } = openGatewayStores()
    const { authtoken } = await issuer.createCredential({ description: 'find me' })
    const { token } = await issuer.createApiKey({ description: 'find me too' })
    database.close()
    const bytes = readFileSync(join(folder, 'gateway.db')).toString('latin1')
    expect(bytes).toContain('find me too')
    expect(bytes).not.toContain(authtoken.reveal().slice(28))
    expect(bytes).not.toContain(token.reveal().slice(28))
  })

  it('keeps everything over a restart', async () => {
    const first = openGatewayStores()
    const botUser = await first.issuer.createBotUser({ name: 'site a', active: false })
    const active = await first.issuer.createBotUser({ name: 'site b' })
    const { credential } = await first.issuer.createCredential({
      ownerId: active.id,
      description: 'd',
      metadata: 'm',
      acl: ['bind:*.site.test'],
    })
    const { apiKey } = await first.issuer.createApiKey({ ownerId: active.id })
    const domain = await first.registrar.reserve({
      domain: '*.site.test',
      metadata: 'm',
      region: 'us',
    })
    first.database.close()
    const second = openGatewayStores(first.folder)
    expect(second.botUsers.page({ limit: 10 })).toEqual([active, botUser])
    expect(second.credentials.get(credential.id)).toEqual(credential)
    expect(second.apiKeys.get(apiKey.id)).toEqual(apiKey)
    expect(second.domains.all()).toEqual([domain])
  })

  it('pages newest first', async () => {
    const { issuer, credentials } = openGatewayStores()
    const ids: string[] = []
    for (let n = 0; n < 7; n += 1) ids.push((await issuer.createCredential({})).credential.id)
    const pages: string[][] = []
    for (let beforeId: string | undefined; ; ) {
      const page = credentials.page({ beforeId, limit: 3 }).map(({ id }) => id)
      if (page.length === 0) break
      pages.push(page)
      beforeId = page.at(-1)
    }
    expect(pages.map(({ length }) => length)).toEqual([3, 3, 1])
    expect(pages.flat()).toEqual(ids.toReversed())
  })

  it('announces each credential that a change concerns', async () => {
    const { issuer, changedCredentials, credentials } = openGatewayStores()
    const botUser = await issuer.createBotUser({ name: 'site a' })
    const own = () => issuer.createCredential({ ownerId: botUser.id })
    const owned = [await own(), await own()].map(({ credential }) => credential)
    const { credential: free } = await issuer.createCredential({})
    const ids = owned.map(({ id }) => id)
    const announced = () => changedCredentials.splice(0)

    const renamed = await issuer.updateBotUser(botUser, { name: 'site b' })
    expect(announced()).toEqual([])
    await issuer.updateBotUser(renamed, { active: false })
    expect(announced()).toEqual(ids)
    await issuer.updateCredential(free, { acl: ['bind:*'] })
    expect(announced()).toEqual([free.id])
    await issuer.deleteCredential(free)
    expect(announced()).toEqual([free.id])
    await issuer.deleteBotUser(renamed)
    expect(announced()).toEqual(ids)
    expect(credentials.page({ limit: 10 })).toEqual([])
  })

  it('refuses with the codes of the service', async () => {
    const { issuer } = openGatewayStores()
    await issuer.createBotUser({ name: 'taken' })
    const idle = await issuer.createBotUser({ name: 'idle', active: false })
    const cases: [code: number, action: () => Promise<unknown>][] = [
      [4109, () => issuer.createBotUser({ name: ' ' })],
      [4110, () => issuer.createBotUser({ name: 'ü'.repeat(128) })],
      [4112, () => issuer.createBotUser({ name: 'taken' })],
      [4112, () => issuer.updateBotUser(idle, { name: 'taken' })],
      [600, () => issuer.createCredential({ acl: ['bind:*', 'nonsense'] })],
      [600, () => issuer.createCredential({ acl: Array(101).fill('*') })],
      [604, () => issuer.createCredential({ description: 'ü'.repeat(128) })],
      [605, () => issuer.createCredential({ metadata: 'x'.repeat(4_097) })],
      [634, () => issuer.createCredential({ ownerId: 'bot_000000000000000000000000000' })],
      [636, () => issuer.createCredential({ ownerId: idle.id })],
      [604, () => issuer.createApiKey({ description: 'x'.repeat(256) })],
      [634, () => issuer.createApiKey({ ownerId: 'usr_x' })],
    ]
    for (const [code, action] of cases) expect(await rejectionCode(action())).toBe(code)
  })
})
