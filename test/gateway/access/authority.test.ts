import { describe, expect, it } from 'vitest'
import { createResourceToken } from '../../../src/gateway/records/resource-id.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { processorMs } from '../../helpers/processor-time.ts'
import { serviceCode } from '../../helpers/service-code.ts'

describe('Authority.authenticate', () => {
  it('knows the credential of a token', () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = issuer.createCredential({ description: 'cam' })
    expect(authority.authenticate(authtoken.reveal())).toEqual(credential)
  })

  it('refuses what is no valid token, without repeating it', () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = issuer.createCredential({})
    const otherSecret = createResourceToken(credential.id).reveal()
    const otherId = `${'0'.repeat(27)}${authtoken.reveal().slice(27)}`
    const cases: [token: string, code: number][] = [
      ['', 4018],
      ['secret', 105],
      [`${authtoken.reveal()}x`, 105],
      [otherSecret, 107],
      [otherId, 107],
    ]
    for (const [token, code] of cases) {
      expect(serviceCode(() => authority.authenticate(token))).toBe(code)
      if (token) expect(() => authority.authenticate(token)).not.toThrow(token)
    }
  })

  it('refuses a token that was deleted', () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = issuer.createCredential({})
    issuer.deleteCredential(credential)
    expect(serviceCode(() => authority.authenticate(authtoken.reveal()))).toBe(107)
    expect(serviceCode(() => authority.checkBind(credential.id, 'a.site.test'))).toBe(300)
  })

  it('refuses the tokens of an inactive bot user until it is active again', () => {
    const { authority, issuer, registrar } = openGatewayStores()
    registrar.reserve({ domain: '*.site.test' })
    const botUser = issuer.createBotUser({ name: 'site a' })
    const { credential, authtoken } = issuer.createCredential({ ownerId: botUser.id })
    const inactive = issuer.updateBotUser(botUser, { active: false })
    expect(serviceCode(() => authority.authenticate(authtoken.reveal()))).toBe(636)
    expect(serviceCode(() => authority.checkBind(credential.id, 'a.site.test'))).toBe(636)
    issuer.updateBotUser(inactive, { active: true })
    expect(authority.authenticate(authtoken.reveal()).id).toBe(credential.id)
  })

  it('takes the same time for a token with a known id as for one without', () => {
    const { authority, issuer } = openGatewayStores()
    const { credential } = issuer.createCredential({})
    const known = createResourceToken(credential.id).reveal()
    const unknown = `${'0'.repeat(27)}${known.slice(27)}`
    const shortest = (token: string) =>
      processorMs(() => {
        for (let n = 0; n < 100; n += 1) serviceCode(() => authority.authenticate(token))
      }, 20)
    shortest(known)
    const ratio = shortest(known) / shortest(unknown)
    expect(ratio).toBeGreaterThan(1 / 3)
    expect(ratio).toBeLessThan(3)
  })
})

describe('Authority.checkBind', () => {
  it.each([
    ['cam.sitea.test', undefined],
    ['x.cam.sitea.test', undefined],
    ['*.sitea.test', undefined],
    ['*.cam.sitea.test', 321],
    ['sitea.test', 319],
    ['one.siteb.test', undefined],
    ['two.siteb.test', 319],
    ['*.siteb.test', 318],
    ['cam.elsewhere.test', 319],
    ['*.elsewhere.test', 318],
  ])('answers for %s: %s', (host, code) => {
    const { authority, issuer, registrar } = openGatewayStores()
    registrar.reserve({ domain: '*.SiteA.test' })
    registrar.reserve({ domain: 'one.siteb.test' })
    const { credential } = issuer.createCredential({})
    expect(serviceCode(() => authority.checkBind(credential.id, host))).toBe(code)
  })

  it('asks the rules first, and reads them fresh', () => {
    const { authority, issuer, registrar } = openGatewayStores()
    registrar.reserve({ domain: '*.sitea.test' })
    const { credential } = issuer.createCredential({ acl: ['bind:*.sitea.test'] })
    const ask = (host: string) => serviceCode(() => authority.checkBind(credential.id, host))
    expect(ask('cam.sitea.test')).toBeUndefined()
    expect(ask('cam.siteb.test')).toBe(316)
    issuer.updateCredential(credential, { acl: ['bind:door.sitea.test'] })
    expect(ask('cam.sitea.test')).toBe(316)
    expect(ask('door.sitea.test')).toBeUndefined()
  })
})

describe('Authority.wildcardFor', () => {
  it.each([
    [[], '*.sitea.test'],
    [['*'], '*.sitea.test'],
    [['bind:*.siteb.test'], '*.siteb.test'],
    [['bind:door.sitea.test', 'bind:*.floor.siteb.test'], '*.floor.siteb.test'],
    [['bind:*.unreserved.test', 'bind:*.siteb.test'], '*.siteb.test'],
  ])('draws for the rules %j from %s', (acl, wildcard) => {
    const { authority, issuer, registrar } = openGatewayStores()
    for (const domain of ['one.test', '*.sitea.test', '*.siteb.test']) registrar.reserve({ domain })
    const { credential } = issuer.createCredential({ acl })
    expect(authority.wildcardFor(credential.id)).toBe(wildcard)
  })

  it.each([[['bind:door.sitea.test']], [['bind:*.unreserved.test']]])(
    'has nothing for the rules %j',
    (acl) => {
      const { authority, issuer, registrar } = openGatewayStores()
      registrar.reserve({ domain: '*.sitea.test' })
      const { credential } = issuer.createCredential({ acl })
      expect(serviceCode(() => authority.wildcardFor(credential.id))).toBe(15013)
    },
  )
})
