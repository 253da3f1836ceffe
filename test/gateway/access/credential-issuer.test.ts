import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { serviceCode } from '../../helpers/service-code.ts'

describe('CredentialIssuer', () => {
  it('keeps tokens as hashes only', () => {
    const { issuer, folder, database } = openGatewayStores()
    const { authtoken } = issuer.createCredential({ description: 'find me' })
    const { token } = issuer.createApiKey({ description: 'find me too' })
    database.close()
    const bytes = readFileSync(join(folder, 'gateway.db')).toString('latin1')
    expect(bytes).toContain('find me too')
    expect(bytes).not.toContain(authtoken.reveal().slice(28))
    expect(bytes).not.toContain(token.reveal().slice(28))
  })

  it('keeps everything over a restart', () => {
    const first = openGatewayStores()
    const botUser = first.issuer.createBotUser({ name: 'site a', active: false })
    const active = first.issuer.createBotUser({ name: 'site b' })
    const { credential } = first.issuer.createCredential({
      ownerId: active.id,
      description: 'd',
      metadata: 'm',
      acl: ['bind:*.site.test'],
    })
    const { apiKey } = first.issuer.createApiKey({ ownerId: active.id })
    const domain = first.registrar.reserve({ domain: '*.site.test', metadata: 'm', region: 'us' })
    first.database.close()
    const second = openGatewayStores(first.folder)
    expect(second.botUsers.page({ limit: 10 })).toEqual([active, botUser])
    expect(second.credentials.get(credential.id)).toEqual(credential)
    expect(second.apiKeys.get(apiKey.id)).toEqual(apiKey)
    expect(second.domains.all()).toEqual([domain])
  })

  it('pages newest first', () => {
    const { issuer, credentials } = openGatewayStores()
    const ids = Array.from({ length: 7 }, () => issuer.createCredential({}).credential.id)
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

  it('announces each credential that a change concerns', () => {
    const { issuer, changedCredentials, credentials } = openGatewayStores()
    const botUser = issuer.createBotUser({ name: 'site a' })
    const owned = [1, 2].map(() => issuer.createCredential({ ownerId: botUser.id }).credential)
    const { credential: free } = issuer.createCredential({})
    const ids = owned.map(({ id }) => id)
    const announced = () => changedCredentials.splice(0)

    const renamed = issuer.updateBotUser(botUser, { name: 'site b' })
    expect(announced()).toEqual([])
    issuer.updateBotUser(renamed, { active: false })
    expect(announced()).toEqual(ids)
    issuer.updateCredential(free, { acl: ['bind:*'] })
    expect(announced()).toEqual([free.id])
    issuer.deleteCredential(free)
    expect(announced()).toEqual([free.id])
    issuer.deleteBotUser(renamed)
    expect(announced()).toEqual(ids)
    expect(credentials.page({ limit: 10 })).toEqual([])
  })

  it('refuses with the codes of the service', () => {
    const { issuer } = openGatewayStores()
    issuer.createBotUser({ name: 'taken' })
    const idle = issuer.createBotUser({ name: 'idle', active: false })
    const cases: [code: number, action: () => unknown][] = [
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
    for (const [code, action] of cases) expect(serviceCode(action)).toBe(code)
  })
})
